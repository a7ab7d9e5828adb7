// Owns the hooks in the verbs library's function tables: the application's own polls and posts make
// progress.
#pragma once

#include <array>
#include <atomic>

#include "emu/kernel/device.hpp"
#include "srd/run/try_lock.hpp"

struct ibv_context;
struct ibv_cq;
struct ibv_cq_ex;
struct ibv_qp;
struct ibv_qp_ex;

namespace weft::preload {

// Correctness never depends on them: what cannot be hooked is served by the background thread, only
// slower. Up to kMaxContexts contexts at a time are hooked.
class VerbsHooks {
 public:
  using Touched = kernel::LibraryHooks::Touched;

  // Exists before the first call, and is never destroyed.
  static VerbsHooks& instance();

  // Around changes of the tables. For fork().
  [[nodiscard]] srd::TryLock& lock() { return lock_; }
  void opened(int fd, kernel::Runner& runner);
  void closing(int fd);
  // In the child of a fork, with the lock held: hooked functions call only the stock ones from now
  // on.
  void forget_all();

  // As LibraryHooks tells.
  void created_cq(const Touched& touched);
  void touched_qp(const Touched& touched);
  void destroyed_qp(const Touched& touched);

  // Null: not a context of ours, or not any more. Called by every poll and post, so it takes no
  // lock: entries are filled in order, and a closed one keeps its context, without a runner, until
  // another context takes the entry.
  [[nodiscard]] kernel::Runner* runner_of(const ibv_context* context) const {
    for (const Context& entry : contexts_) {
      const ibv_context* const known = entry.context.load(std::memory_order_acquire);
      if (known == context) {
        return entry.runner.load(std::memory_order_relaxed);
      }
      if (known == nullptr) {
        break;
      }
    }
    return nullptr;
  }

 private:
  static constexpr std::size_t kMaxContexts = 64;
  struct Context {
    std::atomic<const ibv_context*> context{nullptr};
    std::atomic<kernel::Runner*> runner{nullptr};
    int fd = -1;
  };

  [[nodiscard]] kernel::Runner* runner_of_fd(int fd) const;
  [[nodiscard]] bool know(ibv_context* context, int fd, kernel::Runner& runner);
  // Posts that ring by a command, and requests for events that are one, are noticed without a hook.
  void hook_context(ibv_context* context, bool rings_by_command);

  srd::TryLock lock_;
  std::array<Context, kMaxContexts> contexts_;
  struct OpenFd {
    int fd = -1;
    kernel::Runner* runner = nullptr;
  };
  std::array<OpenFd, kMaxContexts> open_;
};

}  // namespace weft::preload
