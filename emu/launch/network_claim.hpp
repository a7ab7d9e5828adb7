// Owns the lock that lets only one weft at a time start or end a named network.
#pragma once

#include <chrono>
#include <string>

#include "emu/launch/control_client.hpp"
#include "emu/launch/weftd_process.hpp"
#include "srd/base/result.hpp"
#include "srd/io/posix.hpp"

namespace weft::launch {

// `weft up` holds one longest: it asks whether a weftd is there, starts one, asks it, perhaps in
// the last moment, whether it serves, and ends it if it does not.
inline constexpr std::chrono::seconds kLongestClaim =
    kPatienceWithAnswer + kPatienceWithStart + kPatienceWithAnswer + kPatienceWithEnd;

// A lock on the network's directory, for as long as the network comes up or goes. The kernel gives
// it back when its holder ends, however that ends.
class NetworkClaim {
 public:
  // Waits kLongestClaim for another weft that has it.
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
