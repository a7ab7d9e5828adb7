// Owns what a rank tells of itself while it runs, for the process that has to say what a rank waits
// for that says nothing any more.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft::collectives {

// Calls of a plugin.
enum class Call : std::uint8_t {
  none,
  init,
  devices,
  properties,
  listen,
  connect,
  accept,
  register_memory,
  deregister_memory,
  send,
  receive,
  test,
  close_send,
  close_receive,
  close_listener,
  finalize,
};
inline constexpr const char* kCallNames[] = {
    "none",      "init",      "devices",     "getProperties", "listen", "connect",
    "accept",    "regMr",     "deregMr",     "isend",         "irecv",  "test",
    "closeSend", "closeRecv", "closeListen", "finalize"};

// Written by the rank's thread alone, read by the watcher at any moment. Each value is right by
// itself; a text may be a mixture of two, which a report for people can bear. So no lock is needed,
// which a rank that was killed might hold.
class RankActivity {
 public:
  // In this thread.
  void begin() { thread_.store(::gettid(), std::memory_order_relaxed); }
  void end() { thread_.store(0, std::memory_order_relaxed); }
  void moved() {
    moves_.store(moves_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // The rank computes and cannot tell of progress: the watch must not take it for hanging until
  // `computes(false)`.
  void computes(bool now) {
    computes_.store(now, std::memory_order_relaxed);
    moved();
  }
  void enter(Call call) { call_.store(call, std::memory_order_relaxed); }
  void say(std::string_view text) {
    const std::size_t length = std::min(text.size(), text_.size() - 1);
    for (std::size_t i = 0; i < length; ++i) {
      text_[i].store(text[i], std::memory_order_relaxed);
    }
    text_[length].store('\0', std::memory_order_relaxed);
  }

  [[nodiscard]] pid_t thread() const { return thread_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t moves() const { return moves_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool is_computing() const { return computes_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::string text() const {
    std::string all;
    for (const std::atomic<char>& one : text_) {
      const char letter = one.load(std::memory_order_relaxed);
      if (letter == '\0') {
        break;
      }
      all += letter;
    }
    const Call call = call_.load(std::memory_order_relaxed);
    if (call != Call::none) {
      all += std::string(all.empty() ? "" : "; ") + "in a call of " +
             kCallNames[static_cast<std::size_t>(call)] + " that does not return";
    }
    return all.empty() ? "not begun" : all;
  }

 private:
  alignas(64) std::atomic<std::uint64_t> moves_{0};
  std::atomic<pid_t> thread_{0};  // while it runs
  std::atomic<bool> computes_{false};
  std::atomic<Call> call_{Call::none};
  std::array<std::atomic<char>, 256> text_{};
};

}  // namespace weft::collectives
