// Owns what a lab notes for whoever ends it.
//
// `weft lab down` may be called when the lab's file has been changed or is gone, or when `weft lab
// up` was killed half-way: all that it needs is in the record beside weftd's socket.
#include "emu/labs/lab_record.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/temporary_folder.hpp"

namespace weft::labs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LabRecord, IsReadAsItWasWritten) {
  const testing::TemporaryFolder folder;
  EXPECT_FALSE(is_lab(folder.path()));
  EXPECT_EQ(read_record(folder.path()).error().code, ErrorCode::not_found);
  ASSERT_TRUE(write_record(folder.path(), {.engine = "podman",
                                           // A path may be any bytes; the record is JSON and may
                                           // not.
                                           .file = "/l\xFF.yaml",
                                           .text = "name: \"x\"\n",
                                           .complete = true,
                                           .nodes = {"n1", "n2"},
                                           .addresses = {{"n1", "10.0.0.2"}}}));
  EXPECT_TRUE(is_lab(folder.path()));
  const auto record = read_record(folder.path());
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_EQ(record->engine, "podman");
  EXPECT_EQ(record->text, "name: \"x\"\n");
  EXPECT_TRUE(record->complete);
  EXPECT_THAT(record->nodes, ElementsAre("n1", "n2"));
  ASSERT_EQ(record->addresses.size(), 1U);
  EXPECT_EQ(record->addresses[0].address, "10.0.0.2");
}

// No file, wrong kinds, a number where a text must be: `down` must be able to say that it does not
// know this lab, and to leave it alone.
TEST(LabRecord, ADamagedOneIsAnErrorAndNoCrash) {
  const testing::TemporaryFolder folder;
  for (const char* text : {"", "{", "[]", "{}", "7", "{\"engine\": 7}",
                           R"({"engine":"p","file":"f","text":"t","complete":1,"nodes":[],)"
                           R"("addresses":{}})",
                           R"({"engine":"p","file":"f","text":"t","complete":true,"nodes":[1],)"
                           R"("addresses":{"n":2}})"}) {
    std::ofstream(folder.path() + "/lab.json", std::ios::trunc) << text;
    const auto record = read_record(folder.path());
    ASSERT_FALSE(record) << text;
    EXPECT_THAT(record.error().message, HasSubstr("damaged")) << text;
  }
}

}  // namespace
}  // namespace weft::labs
