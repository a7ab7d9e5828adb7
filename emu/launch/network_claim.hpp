// Owns the lock that lets only one weft at a time start or end a named network.
#pragma once

#include <chrono>
#include <string>

#include "emu/launch/control_client.hpp"
#include "emu/launch/weftd_process.hpp"
#include "srd/base/result.hpp"
#include "srd/io/posix.hpp"

namespace weft::launch {

// The longest that `weft up` can hold a claim: it asks whether a weftd is there, starts one, asks
// it whether it serves (at the latest at the end of the start), and ends it if it does not.
inline constexpr std::chrono::seconds kMaxClaim =
    kPatienceWithAnswer + kPatienceWithStart + kPatienceWithAnswer + kPatienceWithEnd;

// A lock (flock) on the network's directory, held while the network is started or ended. The kernel
// releases it when its holder ends, in whatever way.
class NetworkClaim {
 public:
  // Waits kMaxClaim for another weft that has it.
  [[nodiscard]] static Result<NetworkClaim> take(const std::string& name, bool create);

  NetworkClaim(NetworkClaim&& other) noexcept = default;
  NetworkClaim& operator=(NetworkClaim&& other) = delete;
  // Removes the directory if it was empty when it was claimed, unless keep() was called.
  ~NetworkClaim();

  [[nodiscard]] const std::string& directory() const { return directory_; }
  void keep() { was_empty_ = false; }
  // What lay in it is of no use any more: the directory goes.
  void empty() { was_empty_ = true; }

 private:
  NetworkClaim(std::string directory, srd::UniqueFd lock, bool was_empty)
      : directory_(std::move(directory)), lock_(std::move(lock)), was_empty_(was_empty) {}

  std::string directory_;
  srd::UniqueFd lock_;  // on the directory itself: a lock file in it would be removed with it
  bool was_empty_;
};

}  // namespace weft::launch
