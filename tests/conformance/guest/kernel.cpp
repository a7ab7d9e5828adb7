// Owns the cases of posting without calls of the kernel. Where most of them are forbidden, because
// each would cost as much as all else that a message takes; and by children that only a call would
// tell from their parent. Or from pointers that nobody can read.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "emu/kernel/abi/uverbs.hpp"
#include "tests/conformance/guest/cases.hpp"
#include "tests/conformance/verbs_objects.hpp"

namespace weft::conformance {
namespace {

constexpr std::uint32_t kQKey = 0x1234;
constexpr std::uint32_t kSize = 64;
constexpr std::uint32_t kGrh = 40;

// To give way to a thread that holds a lock (the first time with a request for short turns), to
// wake one that sleeps and to hear that one was woken, to look now and then for what weftd says,
// and to end.
constexpr std::uint32_t kAllowed[] = {SYS_sched_yield, SYS_sched_getattr, SYS_sched_setattr,
                                      SYS_futex,       SYS_write,         SYS_sendto,
                                      SYS_recvfrom,    SYS_epoll_wait,    SYS_recvmsg,
                                      SYS_exit_group,  SYS_rt_sigreturn};

void tell_of_call(int /*signal*/, siginfo_t* info, void* /*context*/) {
  char text[32];
  const int length = std::snprintf(text, sizeof text, "system call %d\n", info->si_syscall);
  (void)!write(2, text, static_cast<std::size_t>(length));
  std::_Exit(1);
}

// From now on this thread may make no other call; one that is tried says its number.
void forbid_the_kernel() {
  struct sigaction action {};
  action.sa_sigaction = tell_of_call;
  action.sa_flags = SA_SIGINFO;
  demand(sigaction(SIGSYS, &action, nullptr) == 0, "no handler");
  std::vector<sock_filter> program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (std::size_t i = 0; i < std::size(kAllowed); ++i) {
    const auto to_allow = static_cast<std::uint8_t>(std::size(kAllowed) - i);
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kAllowed[i], to_allow, 0));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog whole{static_cast<unsigned short>(program.size()), program.data()};
  demand(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
             prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole) == 0,
         "no filter");
}

// A queue pair of unreliable datagrams, which every kind of device has, that sends to itself.
class Datagrams {
 public:
  Datagrams() {
    demand(domain_ != nullptr && queue_ != nullptr && region_ != nullptr, "no queue");
    ibv_qp_init_attr made{};
    made.send_cq = made.recv_cq = queue_;
    made.cap = {.max_send_wr = 4,
                .max_recv_wr = 4,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    made.qp_type = IBV_QPT_UD;
    made.sq_sig_all = 1;
    pair_ = ibv_create_qp(domain_, &made);
    demand(pair_ != nullptr, "no queue pair");
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qkey = kQKey;
    change(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    attributes.qp_state = IBV_QPS_RTR;
    change(attributes, IBV_QP_STATE);
    attributes.qp_state = IBV_QPS_RTS;
    change(attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
    ibv_ah_attr way{};
    demand(ibv_query_gid(context_, 1, 0, &way.grh.dgid) == 0, "no GID");
    way.is_global = 1;
    way.port_num = 1;
    self_ = ibv_create_ah(domain_, &way);
    demand(self_ != nullptr, "no address handle");
  }
  Datagrams(const Datagrams&) = delete;
  Datagrams& operator=(const Datagrams&) = delete;

  void talk() {
    ibv_sge piece{address(0), kSize + kGrh, region_->lkey};
    ibv_recv_wr receive{};
    receive.sg_list = &piece;
    receive.num_sge = 1;
    ibv_recv_wr* bad_receive = nullptr;
    demand(ibv_post_recv(pair_, &receive, &bad_receive) == 0, "no receive");
    ibv_sge source{address(kSize + kGrh), kSize, region_->lkey};
    ibv_send_wr send{};
    send.sg_list = &source;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    send.wr.ud = {self_, pair_->qp_num, kQKey};
    ibv_send_wr* bad_send = nullptr;
    demand(ibv_post_send(pair_, &send, &bad_send) == 0, "no send");
    for (int missing = 2; missing > 0;) {
      ibv_wc done{};
      const int count = ibv_poll_cq(queue_, 1, &done);
      demand(count >= 0 && (count == 0 || done.status == IBV_WC_SUCCESS), "a bad completion");
      missing -= count;
    }
  }

  // The command by which a library for soft-RoCE tells of a post; the queue is empty.
  [[nodiscard]] bool tell_of_post() const {
    struct {
      kernel::abi::CommandHeader header;
      kernel::abi::PostSend request;
    } command{};
    command.header.command = static_cast<std::uint32_t>(kernel::abi::Command::post_send);
    command.header.in_words = sizeof command / 4;
    command.header.out_words = 1;
    command.request.response = reinterpret_cast<std::uint64_t>(&reply_);
    command.request.handle = pair_->handle;
    return write(context_->cmd_fd, &command, sizeof command) == sizeof command;
  }
  [[nodiscard]] bool is_bad(std::uintptr_t command) const {
    constexpr std::size_t kBytes =
        sizeof(kernel::abi::CommandHeader) + sizeof(kernel::abi::PostSend);
    const void* volatile from =
        reinterpret_cast<const void*>(command);  // not known to the compiler
    return write(context_->cmd_fd, from, kBytes) < 0 && errno == EFAULT;
  }

 private:
  std::uint64_t address(std::size_t offset) {
    return reinterpret_cast<std::uint64_t>(&memory_[offset]);
  }
  void change(ibv_qp_attr& attributes, int mask) {
    demand(ibv_modify_qp(pair_, &attributes, mask) == 0, "the state does not change");
  }

  std::array<std::uint8_t, 2 * kSize + kGrh> memory_{};
  std::uint32_t reply_ = 0;
  ibv_context* context_ = open_first_device();
  ibv_pd* domain_ = ibv_alloc_pd(context_);
  ibv_cq* queue_ = ibv_create_cq(context_, 8, nullptr, nullptr, 0);
  ibv_mr* region_ = ibv_reg_mr(domain_, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE);
  ibv_qp* pair_ = nullptr;
  ibv_ah* self_ = nullptr;
};

}  // namespace

int without_the_kernel() {
  Datagrams queue;
  queue.talk();  // with whatever is only done once
  forbid_the_kernel();
  for (int turn = 0; turn < 2000; ++turn) {
    queue.talk();
  }
  std::_Exit(0);  // the end of a process makes other calls
}

int posts_past_fork() {
  Datagrams queue;
  queue.talk();
  demand(queue.tell_of_post(), "nothing to post is refused");
  for (const bool handled : {true, false}) {
    const pid_t child = handled ? fork() : _Fork();
    if (child == 0) {
      alarm(20);
      demand(!queue.tell_of_post() && errno == EIO, "a child posts by its copy of the device");
      std::_Exit(0);
    }
    int status = 0;
    demand(waitpid(child, &status, 0) == child && status == 0, "a child fails");
    queue.talk();
  }
  const pid_t child = vfork();
  if (child == 0) {
    _exit(queue.tell_of_post() ? 0 : 1);
  }
  int status = 0;
  demand(waitpid(child, &status, 0) == child && status == 0, "a child of vfork() fails");
  queue.talk();
  return 0;
}

int bad_posts() {
  constexpr std::size_t kPage = 4096;
  Datagrams queue;
  void* const pages =
      mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto second = reinterpret_cast<std::uintptr_t>(pages) + kPage;
  demand(mprotect(reinterpret_cast<void*>(second), kPage, PROT_NONE) == 0, "mprotect");
  // The third and the fourth one are addresses that no page can have, the last two end behind all.
  for (const std::uintptr_t bad :
       {std::uintptr_t{0}, std::uintptr_t{8}, std::uintptr_t{1} << 63, std::uintptr_t{1} << 62,
        ~std::uintptr_t{0} << 31, second, second - 16, ~std::uintptr_t{0}, ~std::uintptr_t{15}}) {
    demand(queue.is_bad(bad), "a command that cannot be read");
    queue.talk();
  }
  return 0;
}

}  // namespace weft::conformance
