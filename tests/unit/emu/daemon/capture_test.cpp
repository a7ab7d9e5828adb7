// Owns the test of captures whose file does not open.
#include "emu/daemon/capture.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>

#include "tests/support/temporary_folder.hpp"

namespace weft::daemon {
namespace {

using namespace std::chrono_literals;

TEST(Capture, AFileThatDoesNotOpenHoldsNobodyUp) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/late.pcapng";
  std::promise<void> answers;
  const auto opened = std::make_shared<std::promise<void>>();
  const auto writer = open_within(1ms, [path, opened, answer = answers.get_future().share()] {
    answer.wait();
    auto file = srd::PcapngWriter::create(path, "late");
    opened->set_value();
    return file;
  });
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code, ErrorCode::io_error);
  EXPECT_NE(writer.error().message.find("does not open"), std::string::npos);
  answers.set_value();
  opened->get_future().wait();  // the thread has nothing to give it to, and ends
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(Capture, AFileThatOpensIsTheCallers) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/now.pcapng";
  const auto writer = open_within(10s, [&] { return srd::PcapngWriter::create(path, "now"); });
  ASSERT_TRUE(writer);
  EXPECT_FALSE(writer->failed());
}

}  // namespace
}  // namespace weft::daemon
