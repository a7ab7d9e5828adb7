// Owns the test that docs/messages.md shows the program that is compiled and run, and true limits.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "srd/message/records.hpp"

namespace weft::srd {
namespace {

std::string contents(const std::string& name) {
  std::ifstream file(name);
  EXPECT_TRUE(file.is_open()) << name << ": run it in the root of the tree";
  return {std::istreambuf_iterator<char>{file}, {}};
}

TEST(ApiDocs, ShowTheProgramThatIsCompiled) {
  const std::string docs = contents("docs/messages.md");
  const std::string program = contents("tests/unit/srd/message/example.cpp");
  EXPECT_NE(docs.find("```cpp\n" + program + "```\n"), std::string::npos)
      << "copy tests/unit/srd/message/example.cpp into the code block of docs/messages.md";
}

// A limit that changes in the code has to change in the documentation.
TEST(ApiDocs, NameTheLimitsOfThePartners) {
  const std::string docs = contents("docs/messages.md");
  EXPECT_NE(docs.find("at most " + std::to_string(message::kOrderWindow) + " numbers"),
            std::string::npos);
  EXPECT_NE(docs.find("at most " + std::to_string(message::kMaxRequests) + " requests"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::srd
