// Owns the lock that lets only one weft at a time start or end a named network.
#pragma once

#include <string>

#include "srd/base/result.hpp"
#include "srd/io/posix.hpp"

namespace weft::launch {

// A lock on the network's directory, for as long as the network comes up or goes. The kernel gives
// it back when its holder ends, however that ends.
class NetworkClaim {
 public:
  // Waits for another weft that has it, as long as starting or ending a weftd takes at most.
  [[nodiscard]] static Result<NetworkClaim> take(const std::string& name, bool create);

  NetworkClaim(NetworkClaim&& other) noexcept = default;
  NetworkClaim& operator=(NetworkClaim&& other) = delete;
  // Removes the directory if it was empty when it was claimed, unless keep() was called.
  ~NetworkClaim();

  [[nodiscard]] const std::string& directory() const { return directory_; }
  void keep() { was_empty_ = false; }

 private:
  NetworkClaim(std::string directory, srd::UniqueFd lock, bool was_empty)
      : directory_(std::move(directory)), lock_(std::move(lock)), was_empty_(was_empty) {}

  std::string directory_;
  srd::UniqueFd lock_;  // of the directory itself: a file in it would go with it
  bool was_empty_;
};

}  // namespace weft::launch
