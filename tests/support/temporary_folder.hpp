// Owns a folder of one test, which goes with it.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "srd/base/check.hpp"

namespace weft::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() { WEFT_CHECK(::mkdtemp(path_.data()) != nullptr); }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/weft-test-XXXXXX";  // short: paths of sockets have 107 characters
};

}  // namespace weft::testing
