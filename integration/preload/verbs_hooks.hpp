// Owns the hooks in the verbs library's function tables: the application's own polls and posts make
// progress.
#pragma once

#include <array>
#include <atomic>
#include <mutex>

#include "emu/kernel/device.hpp"

struct ibv_context;
struct ibv_cq;
struct ibv_cq_ex;
struct ibv_qp;
struct ibv_qp_ex;

namespace weft::preload {

// Correctness never depends on them: whatever cannot be hooked is served by the background thread.
class VerbsHooks final : public emu::kernel::LibraryHooks {
 public:
  static VerbsHooks& instance();

  void opened(int fd, emu::kernel::Runner& runner);
  void closing(int fd);
  // In the child of a fork: hooked functions call only the stock ones from now on.
  void forget_all();

  void created_cq(const Touched& touched) override;
  void touched_qp(const Touched& touched) override;

  // Null: not a context of ours (any more).
  [[nodiscard]] emu::kernel::Runner* runner_of(const ibv_context* context) const {
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
  static constexpr std::size_t kMostContexts = 64;
  struct Context {
    std::atomic<const ibv_context*> context{nullptr};
    std::atomic<emu::kernel::Runner*> runner{nullptr};
    int fd = -1;
  };

  [[nodiscard]] emu::kernel::Runner* runner_of_fd(int fd) const;
  [[nodiscard]] bool know(ibv_context* context, int fd, emu::kernel::Runner& runner);
  void hook_context(ibv_context* context);
  void hook_cq(ibv_cq* cq);
  void hook_qp(ibv_qp* qp);

  mutable std::mutex mutex_;
  std::array<Context, kMostContexts> contexts_;
  struct OpenFd {
    int fd = -1;
    emu::kernel::Runner* runner = nullptr;
  };
  std::array<OpenFd, kMostContexts> open_;
};

}  // namespace weft::preload
