// Owns a weftd of one's own: started for a command, gone with it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "srd/base/result.hpp"

namespace weft::cli {

// The weftd that lies beside this program.
[[nodiscard]] std::string weftd_path();

class PrivateWeftd {
 public:
  struct Options {
    std::size_t hosts = 2;
    bool direct_rings = true;
    std::vector<std::string> arguments;  // further ones
  };
  // Returns when it accepts processes.
  [[nodiscard]] static Result<PrivateWeftd> start(const Options& options);

  PrivateWeftd(PrivateWeftd&& other) noexcept;
  PrivateWeftd& operator=(PrivateWeftd&& other) = delete;
  ~PrivateWeftd();

  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] std::string socket() const { return directory_ + "/attach.sock"; }

 private:
  PrivateWeftd() = default;
  std::string directory_;
  pid_t pid_ = -1;
};

}  // namespace weft::cli
