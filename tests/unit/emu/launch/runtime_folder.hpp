// Owns a place for sockets and temporary directories of one test.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <optional>
#include <string>

#include "tests/support/temporary_folder.hpp"

namespace weft::launch {

// $XDG_RUNTIME_DIR is a folder of this test alone, and what it was before when the test is over.
class InRuntimeFolder : public ::testing::Test {
 protected:
  InRuntimeFolder() {
    if (const char* before = ::getenv(kVariable); before != nullptr) {
      before_ = before;
    }
    ::setenv(kVariable, folder_.path().c_str(), 1);
  }
  ~InRuntimeFolder() override {
    if (before_) {
      ::setenv(kVariable, before_->c_str(), 1);
    } else {
      ::unsetenv(kVariable);
    }
  }

  const testing::TemporaryFolder folder_;

 private:
  static constexpr const char* kVariable = "XDG_RUNTIME_DIR";
  std::optional<std::string> before_;
};

}  // namespace weft::launch
