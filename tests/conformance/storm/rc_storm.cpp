// Owns the programs of the storm of reliable connections, which rc_storm.py kills, stops and cuts
// off.
//
//   weft_rc_storm target PORT   serves any number of peers, over a shared receive queue
//   weft_rc_storm peer PORT     is one of them, with receives of its own; it comes back after
//   errors
//
// Both ends send, write and read all the time. When work fails, the rest of the queue pair's work
// must be flushed, all of it, once, and the queue pair be in error; a shared queue's user hears of
// its last receive. SIGTERM ends a program: a peer when its connection has gone on for a while.
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <vector>

#include "tests/conformance/verbs_objects.hpp"

namespace weft::conformance {
namespace {

// Small windows and a shared queue that is larger than all of them together: the storm is about
// errors, not about receivers that are not ready.
constexpr std::uint32_t kWindow = 4;    // requests under way, of each end
constexpr std::uint32_t kReceives = 8;  // of a peer's queue pair
constexpr std::uint32_t kShared = 256;  // of the target
constexpr std::uint32_t kSize = 5000;   // bytes of a message: two packets
constexpr std::size_t kSlots = 1024;    // of memory, each as large as a message
constexpr int kGid = 1;                 // IPv4
constexpr std::uint64_t kEnough = 200;  // requests that show that a connection works
constexpr int kPatience = 1000;         // hundredths of a second

volatile std::sig_atomic_t stopping = 0;

enum class Work : std::uint8_t { send, write, read, receive };

// What the ends tell each other over a socket.
struct Address {
  std::uint32_t qpn;
  std::uint32_t psn;
  std::uint32_t rkey;
  std::uint32_t board;     // number of the slot that the other end writes to
  std::uint32_t constant;  // and of the one that it reads
  std::uint64_t memory;    // of slot 0
  ibv_gid gid;
};

// A leak of descriptors is how a ring or an event channel that was forgotten shows itself.
std::size_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// The device and what all connections of a process share.
class Nic {
 public:
  explicit Nic(bool shared) : context_(open_first_device()), memory_(kSlots * kSize) {
    domain_ = ibv_alloc_pd(context_);
    queue_ = ibv_create_cq(context_, 8192, nullptr, nullptr, 0);
    region_ = ibv_reg_mr(domain_, memory_.data(), memory_.size(),
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    demand(domain_ != nullptr && queue_ != nullptr && region_ != nullptr, "no objects");
    demand(ibv_query_gid(context_, 1, kGid, &gid_) == 0, "no GID");
    const int flags = fcntl(context_->async_fd, F_GETFL);
    demand(fcntl(context_->async_fd, F_SETFL, flags | O_NONBLOCK) == 0, "the event channel");
    for (std::uint32_t slot = kSlots; slot > 0; --slot) {
      free_.push_back(slot - 1);
    }
    if (shared) {
      ibv_srq_init_attr request{nullptr, {kShared, 1, 0}};
      shared_ = ibv_create_srq(domain_, &request);
      demand(shared_ != nullptr, "no shared receive queue");
    }
  }
  ~Nic() {
    demand((shared_ == nullptr || ibv_destroy_srq(shared_) == 0) && ibv_destroy_cq(queue_) == 0 &&
               ibv_dereg_mr(region_) == 0 && ibv_dealloc_pd(domain_) == 0 &&
               ibv_close_device(context_) == 0,
           "cannot take down what was set up");
  }
  Nic(const Nic&) = delete;
  Nic& operator=(const Nic&) = delete;

  [[nodiscard]] std::uint32_t take_slot() {
    demand(!free_.empty(), "no memory is left: a connection has kept its own");
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give_back(std::uint32_t slot) { free_.push_back(slot); }
  [[nodiscard]] std::size_t free_slots() const { return free_.size(); }
  [[nodiscard]] std::uint8_t* at(std::uint32_t slot) { return memory_.data() + slot * kSize; }
  [[nodiscard]] ibv_sge piece(std::uint32_t slot) {
    return {reinterpret_cast<std::uintptr_t>(at(slot)), kSize, region_->lkey};
  }

  [[nodiscard]] ibv_context* context() const { return context_; }
  [[nodiscard]] ibv_pd* domain() const { return domain_; }
  [[nodiscard]] ibv_cq* queue() const { return queue_; }
  [[nodiscard]] ibv_srq* shared() const { return shared_; }
  [[nodiscard]] const ibv_mr& region() const { return *region_; }
  [[nodiscard]] const ibv_gid& gid() const { return gid_; }

 private:
  ibv_context* context_;
  ibv_pd* domain_ = nullptr;
  ibv_cq* queue_ = nullptr;
  ibv_srq* shared_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_gid gid_{};
  std::vector<std::uint8_t> memory_;
  std::vector<std::uint32_t> free_;
};

// Every byte of a message follows from its number.
void fill(std::uint8_t* to, std::uint64_t number) {
  std::memset(to, static_cast<int>(number * 7 % 251), kSize);
  std::memcpy(to, &number, sizeof number);
}
bool is_whole(const std::uint8_t* from, std::uint64_t number) {
  std::array<std::uint8_t, kSize> expected;
  fill(expected.data(), number);
  return std::memcmp(from, expected.data(), kSize) == 0;
}

// One queue pair and its way to the one at the other end.
class Connection {
 public:
  Connection(Nic& nic, int socket)
      : nic_(nic), board_(nic.take_slot()), constant_(nic.take_slot()) {
    ibv_qp_init_attr request{};
    request.send_cq = request.recv_cq = nic.queue();
    request.srq = nic.shared();
    request.cap = {kWindow, kReceives, 1, 1, 0};
    request.qp_type = IBV_QPT_RC;
    pair_ = ibv_create_qp(nic.domain(), &request);
    demand(pair_ != nullptr, "no queue pair");
    fill(nic.at(constant_), constant_);
    Address mine{pair_->qp_num, 0,         nic.region().rkey,
                 board_,        constant_, reinterpret_cast<std::uintptr_t>(nic.at(0)),
                 nic.gid()};
    demand(::getrandom(&mine.psn, 3, 0) == 3, "no random number");
    good_ = ::send(socket, &mine, sizeof mine, MSG_NOSIGNAL) == sizeof mine &&
            ::recv(socket, &other_, sizeof other_, MSG_WAITALL) == sizeof other_;
    if (good_) {
      lead(mine.psn);
    }
    for (std::uint32_t i = 0; i < kReceives && nic.shared() == nullptr; ++i) {
      post_receive(nic.take_slot());
    }
  }
  ~Connection() {
    demand(ibv_destroy_qp(pair_) == 0, "a queue pair cannot be destroyed");
    nic_.give_back(board_);
    nic_.give_back(constant_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // False: the other end has gone before it said where it is.
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] std::uint32_t number() const { return pair_->qp_num; }
  [[nodiscard]] std::uint64_t done() const { return done_; }
  // All that was posted has ended. A shared queue's user has heard that it takes no more receives.
  [[nodiscard]] bool is_over() const {
    return (failed_ || ending_) && open_ == 0 && receives_ == 0 &&
           (last_heard_ || nic_.shared() == nullptr);
  }
  void hear_last() {
    demand(failed_ || in_error(), "a queue pair that works has taken its last receive");
    demand(!last_heard_, "the last receive was told twice");
    last_heard_ = true;
  }

  // Sends, writes and reads in turn, as many as the window has room for.
  void keep_busy() {
    while (!failed_ && !ending_ && open_ < kWindow) {
      const auto work = static_cast<Work>(posted_ % 3);
      const std::uint32_t slot = nic_.take_slot();
      ibv_sge piece = nic_.piece(slot);
      ibv_send_wr request{};
      request.wr_id = id(work, slot);
      request.sg_list = &piece;
      request.num_sge = 1;
      request.send_flags = IBV_SEND_SIGNALED;
      request.opcode = work == Work::send    ? IBV_WR_SEND
                       : work == Work::write ? IBV_WR_RDMA_WRITE
                                             : IBV_WR_RDMA_READ;
      request.wr.rdma = {other_.memory + (work == Work::write ? other_.board : other_.constant) *
                                             std::uint64_t{kSize},
                         other_.rkey};
      fill(nic_.at(slot), work == Work::send ? ++sent_ : 0);
      ibv_send_wr* bad = nullptr;
      demand(ibv_post_send(pair_, &request, &bad) == 0, "cannot post");
      ++open_;
      ++posted_;
    }
  }

  // Checks one completion against what was posted. Of the work that fails, the first tells why, and
  // everything behind it must be flushed.
  void take(const ibv_wc& done) {
    const auto work = static_cast<Work>(done.wr_id >> 32);
    const auto slot = static_cast<std::uint32_t>(done.wr_id);
    if (work == Work::receive) {
      take_receive(done, slot);
      return;
    }
    demand(open_ > 0, "more has ended than was posted");
    --open_;
    if (done.status == IBV_WC_SUCCESS) {
      demand(!failed_, "work ends well behind work that failed");
      demand(work != Work::read || is_whole(nic_.at(slot), other_.constant), "a read is wrong");
      ++done_;
    } else {
      const ibv_wc_status expected =
          failed_ || ending_ ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR;  // the first says why
      if (done.status != expected) {
        give_up(std::string("work ends with ") + ibv_wc_status_str(done.status));
      }
      demand(failed_ || in_error(), "a queue pair whose work failed is not in error");
      failed_ = true;
    }
    nic_.give_back(slot);
  }

  // As a program does that has had enough.
  void end() {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_ERR;
    demand(ibv_modify_qp(pair_, &to, IBV_QP_STATE) == 0, "into error");
    ending_ = true;
  }

  [[nodiscard]] static std::uint64_t id(Work work, std::uint32_t slot) {
    return static_cast<std::uint64_t>(work) << 32 | slot;
  }

 private:
  // Messages of one connection come in order, each once: their numbers are counted here.
  void take_receive(const ibv_wc& done, std::uint32_t slot) {
    if (done.status == IBV_WC_SUCCESS) {
      demand(done.byte_len == kSize && is_whole(nic_.at(slot), ++heard_),
             "a message came twice, not at all, or not whole");
    } else {
      demand(done.status == IBV_WC_WR_FLUSH_ERR && (failed_ || in_error()), "a receive failed");
    }
    if (nic_.shared() != nullptr) {
      return;  // the queue's, which has posted it again
    }
    --receives_;
    if (done.status == IBV_WC_SUCCESS && !failed_ && !ending_) {
      post_receive(slot);
    } else {
      nic_.give_back(slot);
    }
  }
  void post_receive(std::uint32_t slot) {
    ibv_sge piece = nic_.piece(slot);
    ibv_recv_wr request{};
    request.wr_id = id(Work::receive, slot);
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    demand(ibv_post_recv(pair_, &request, &bad) == 0, "cannot post a receive");
    ++receives_;
  }
  [[nodiscard]] bool in_error() const {
    ibv_qp_attr now{};
    ibv_qp_init_attr made{};
    return ibv_query_qp(pair_, &now, IBV_QP_STATE, &made) == 0 && now.qp_state == IBV_QPS_ERR;
  }
  // Leads the queue pair to RTS. 67 ms and three more tries: a peer that was stopped for longer
  // counts as dead.
  void lead(std::uint32_t psn) {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_INIT;
    to.port_num = 1;
    to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    demand(ibv_modify_qp(pair_, &to,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
           "INIT");
    to.qp_state = IBV_QPS_RTR;
    to.ah_attr.is_global = 1;
    to.ah_attr.port_num = 1;
    to.ah_attr.grh.sgid_index = kGid;
    to.ah_attr.grh.dgid = other_.gid;
    to.ah_attr.grh.hop_limit = 64;
    to.path_mtu = IBV_MTU_4096;
    to.dest_qp_num = other_.qpn;
    to.rq_psn = other_.psn;
    to.max_dest_rd_atomic = to.max_rd_atomic = 4;
    to.min_rnr_timer = 1;
    demand(ibv_modify_qp(pair_, &to,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
           "RTR");
    to.qp_state = IBV_QPS_RTS;
    to.sq_psn = psn;
    to.timeout = 14;  // 67 ms, and three tries more
    to.retry_cnt = 3;
    to.rnr_retry = 7;
    demand(ibv_modify_qp(pair_, &to,
                         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
           "RTS");
  }

  Nic& nic_;
  ibv_qp* pair_ = nullptr;
  std::uint32_t board_;
  std::uint32_t constant_;
  Address other_{};
  bool good_ = false;
  bool failed_ = false;
  bool ending_ = false;  // by our own doing
  bool last_heard_ = false;
  std::uint32_t open_ = 0;
  std::uint32_t receives_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t heard_ = 0;
  std::uint64_t done_ = 0;
};

sockaddr_in local(const char* port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// All connections of a process, by the numbers of their queue pairs.
class Program {
 public:
  explicit Program(bool is_target) : nic_(is_target), others_(is_target ? 0 : 1) {
    for (std::uint32_t i = 0; is_target && i < kShared; ++i) {
      post_shared(nic_.take_slot());
    }
    slots_ = nic_.free_slots();
    descriptors_ = descriptors();
  }

  void connect(int socket) {
    auto made = std::make_unique<Connection>(nic_, socket);
    ::close(socket);
    if (made->good()) {
      ++connections_;
      all_.emplace(made->number(), std::move(made));
    } else if (nic_.shared() == nullptr) {
      give_up("the target has gone");
    }
  }
  // One turn; false: nothing happened.
  bool work() {
    bool busy = false;
    std::array<ibv_wc, 32> done;
    const int count = ibv_poll_cq(nic_.queue(), done.size(), done.data());
    demand(count >= 0, "polling fails");
    for (int i = 0; i < count; ++i) {
      const ibv_wc& one = done[static_cast<std::size_t>(i)];
      busy = true;
      const auto found = all_.find(one.qp_num);
      demand(found != all_.end(), "a completion of a queue pair that is gone");
      found->second->take(one);
      if (nic_.shared() != nullptr && one.wr_id >> 32 == std::uint64_t(Work::receive)) {
        post_shared(static_cast<std::uint32_t>(one.wr_id));
      }
    }
    hear_events();
    for (auto it = all_.begin(); it != all_.end();) {
      it->second->keep_busy();
      if (it->second->is_over()) {
        done_ += it->second->done();
        ++errors_;
        it = all_.erase(it);
      } else {
        ++it;
      }
    }
    return busy;
  }
  void end_all() {
    for (auto& [number, one] : all_) {
      one->end();
    }
    while (!all_.empty()) {
      work();
    }
    demand(nic_.free_slots() == slots_, "memory of work that has ended is missing");
    // One more to each process that still runs is no leak: the bell of a direct ring, which is made
    // when no fault is left between the two. weftd has to tell of those that have ended.
    std::size_t now = descriptors();
    for (int turns = 0; now > descriptors_ + others_ && turns < kPatience; ++turns) {
      work();
      ::usleep(10'000);
      now = descriptors();
    }
    demand(now >= descriptors_ && now <= descriptors_ + others_, "descriptors are left");
    std::printf("%llu requests, %llu connections, %llu ended, port down %llu times and up %llu\n",
                static_cast<unsigned long long>(done_),
                static_cast<unsigned long long>(connections_),
                static_cast<unsigned long long>(errors_), static_cast<unsigned long long>(downs_),
                static_cast<unsigned long long>(ups_));
  }
  [[nodiscard]] bool is_alone() const { return all_.empty(); }
  [[nodiscard]] std::uint64_t done() const {
    std::uint64_t sum = 0;
    for (const auto& [number, one] : all_) {
      sum += one->done();
    }
    return sum;
  }

 private:
  void post_shared(std::uint32_t slot) {
    ibv_sge piece = nic_.piece(slot);
    ibv_recv_wr request{};
    request.wr_id = Connection::id(Work::receive, slot);
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    demand(ibv_post_srq_recv(nic_.shared(), &request, &bad) == 0, "cannot post to all");
  }
  // Only events that the storm explains may come; each of them at most as often as it may.
  void hear_events() {
    ibv_async_event event{};
    while (ibv_get_async_event(nic_.context(), &event) == 0) {
      if (event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED) {
        const auto found = all_.find(event.element.qp->qp_num);
        demand(found != all_.end(), "an event of a queue pair that is gone");
        found->second->hear_last();
      } else if (event.event_type == IBV_EVENT_COMM_EST) {
        // The other end was ready first, and its first packet came before we could send.
      } else if (event.event_type == IBV_EVENT_PORT_ERR) {
        ++downs_;
      } else if (event.event_type == IBV_EVENT_PORT_ACTIVE) {
        ++ups_;
      } else {
        give_up(std::string("an event: ") + ibv_event_type_str(event.event_type));
      }
      ibv_ack_async_event(&event);
    }
  }

  Nic nic_;
  std::map<std::uint32_t, std::unique_ptr<Connection>> all_;
  std::size_t slots_ = 0;
  std::size_t descriptors_ = 0;
  std::size_t others_;  // processes that it talks to: a target ends when its peers have
  std::uint64_t connections_ = 0;
  std::uint64_t errors_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t downs_ = 0;
  std::uint64_t ups_ = 0;
};

void be_target(const char* port) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in address = local(port);
  demand(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
             ::listen(listener, 64) == 0,
         "the port cannot be listened at");
  Program program(true);
  while (stopping == 0) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) {
      const timeval patience{0, 200'000};  // the peer may have been killed
      ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      program.connect(fd);
    }
    if (!program.work()) {
      ::usleep(50);
    }
  }
  program.end_all();
}

// After SIGTERM a peer goes on until a connection has done kEnough requests: it shows that the
// network works again after all that was done to it.
void be_peer(const char* port) {
  Program program(false);
  std::uint64_t enough = 0;
  while (stopping == 0 || program.is_alone() || program.done() < enough) {
    if (program.is_alone()) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in address = local(port);
      demand(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
             "the target does not listen");
      program.connect(fd);
      enough = 0;
    }
    if (stopping != 0 && enough == 0) {
      enough = program.done() + kEnough;  // of a connection that lives
    }
    if (!program.work()) {
      ::usleep(50);
    }
  }
  program.end_all();
}

}  // namespace
}  // namespace weft::conformance

int main(int argc, char** argv) {
  using namespace weft::conformance;
  if (argc != 3) {
    give_up("usage: weft_rc_storm target|peer PORT", 2);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // nothing stays behind
  alarm(300);
  struct sigaction action {};
  action.sa_handler = [](int) { stopping = 1; };
  sigaction(SIGTERM, &action, nullptr);
  std::strcmp(argv[1], "target") == 0 ? be_target(argv[2]) : be_peer(argv[2]);
  return 0;
}
