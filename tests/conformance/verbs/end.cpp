// Owns the calls that bring two ends together.
#include "tests/conformance/verbs/end.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weft::conformance {
namespace {

constexpr int kPatience = 60'000;  // milliseconds without news

int listen_at(const char* port) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
  demand(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
             ::listen(listener, 1) == 0,
         "the port cannot be listened at");
  const int fd = ::accept(listener, nullptr, nullptr);
  ::close(listener);
  return fd;
}

// 67 ms, unless the other end is slower, as a machine that another one emulates.
std::uint8_t ack_timeout() {
  const char* exponent = std::getenv("WEFT_VERBS_TIMEOUT");
  return static_cast<std::uint8_t>(exponent == nullptr ? 14 : std::atoi(exponent));
}

// The other end may not listen yet. How long it may take is the caller's matter.
int call(const char* host, const char* port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  demand(::getaddrinfo(host, port, &hints, &found) == 0, "the host has no address");
  for (;;) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    demand(fd >= 0, "there is no socket");
    if (::connect(fd, found->ai_addr, found->ai_addrlen) == 0) {
      ::freeaddrinfo(found);
      return fd;
    }
    demand(errno == ECONNREFUSED, "the other end cannot be called");
    ::close(fd);
    ::usleep(50'000);
  }
}

}  // namespace

Meeting::Meeting(const char* host, const char* port)
    : fd_(host == nullptr ? listen_at(port) : call(host, port)) {
  demand(fd_ >= 0, "the other end is not there");
  const timeval patience{kPatience / 1000, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const int on = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Meeting::~Meeting() { ::close(fd_); }

void Meeting::say(const void* from, std::size_t size) const {
  demand(::send(fd_, from, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size),
         "the other end has gone");
}

void Meeting::hear(void* to, std::size_t size) const {
  demand(::recv(fd_, to, size, MSG_WAITALL) == static_cast<ssize_t>(size),
         "the other end says nothing");
}

Device::Device(std::size_t memory)
    : context_(open_first_device()),
      domain_(ibv_alloc_pd(context_.get())),
      channel_(ibv_create_comp_channel(context_.get())),
      queue_(ibv_create_cq(context_.get(), kEntries, nullptr, channel_.get(), 0)),
      memory_(new std::byte[memory]),
      region_(ibv_reg_mr(domain_.get(), memory_.get(), memory,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                             IBV_ACCESS_REMOTE_ATOMIC)) {
  demand(region_ != nullptr && queue_ != nullptr, "the device refuses the basic objects");
  demand(ibv_query_port(context_.get(), 1, &port_) == 0, "the port cannot be asked");
  choose_gid();
}

// The one that the environment says; else that of an IPv4 address, as perftest does it; else the
// first.
void Device::choose_gid() {
  if (const char* index = std::getenv("WEFT_VERBS_GID"); index != nullptr) {
    gid_index_ = static_cast<std::uint8_t>(std::atoi(index));
    demand(ibv_query_gid(context_.get(), 1, gid_index_, &gid_) == 0, "there is no such GID");
    return;
  }
  constexpr unsigned char kV4[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  for (int i = 0; i < port_.gid_tbl_len; ++i) {
    ibv_gid gid{};
    if (ibv_query_gid(context_.get(), 1, i, &gid) == 0 &&
        std::memcmp(gid.raw, kV4, sizeof kV4) == 0) {
      gid_ = gid;
      gid_index_ = static_cast<std::uint8_t>(i);
      return;
    }
  }
  demand(ibv_query_gid(context_.get(), 1, 0, &gid_) == 0, "there is no GID 0");
}

std::optional<ibv_wc> Device::next(int milliseconds) {
  ibv_wc done{};
  // Most completions come while the program looks. Then it goes the way to sleep that verbs
  // programs have to go: arm, look once more, sleep, take the event, arm again.
  constexpr int kLooks = 200;
  for (int look = 0; look < kLooks; ++look) {
    if (ibv_poll_cq(queue_.get(), 1, &done) == 1) {
      return done;
    }
  }
  demand(ibv_req_notify_cq(queue_.get(), 0) == 0, "no event can be asked for");
  if (ibv_poll_cq(queue_.get(), 1, &done) == 1) {
    return done;
  }
  pollfd ready{channel_->fd, POLLIN, 0};
  while (::poll(&ready, 1, milliseconds) == 1) {
    ibv_cq* queue = nullptr;
    void* unused = nullptr;
    demand(ibv_get_cq_event(channel_.get(), &queue, &unused) == 0, "an event cannot be taken");
    ibv_ack_cq_events(queue, 1);
    if (ibv_poll_cq(queue, 1, &done) == 1) {  // an older event may have come first
      return done;
    }
    demand(ibv_req_notify_cq(queue, 0) == 0, "no event can be asked for");
    if (ibv_poll_cq(queue, 1, &done) == 1) {
      return done;
    }
  }
  return std::nullopt;
}

ibv_wc Device::expect() {
  const auto done = next(kPatience);
  if (!done) {
    give_up("nothing completes any more");
  }
  if (done->status != IBV_WC_SUCCESS) {
    give_up(std::string("a request ends with ") + ibv_wc_status_str(done->status));
  }
  return *done;
}

namespace {

ibv_qp* create_extended(const Device& device, const ibv_qp_init_attr& plain) {
  ibv_qp_init_attr_ex request{};
  request.qp_type = plain.qp_type;
  request.send_cq = plain.send_cq;
  request.recv_cq = plain.recv_cq;
  request.srq = plain.srq;
  request.cap = plain.cap;
  request.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  request.pd = device.domain();
  request.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE;
  return ibv_create_qp_ex(device.domain()->context, &request);
}

}  // namespace

Link::Link(const Device& device, Meeting& meeting, ibv_qp_type type, ibv_srq* srq,
           std::uint32_t depth, ibv_mtu mtu, const Manner& manner)
    : gid_index_(device.gid_index()), manner_(manner) {
  ibv_qp_init_attr request{};
  request.qp_type = type;
  request.send_cq = request.recv_cq = device.queue();
  request.srq = srq;
  request.cap = {depth, depth, kMaxPieces, kMaxPieces, kMaxInline};
  // What each needs to know of the other is exchanged between RESET and INIT, when it is known and
  // nothing can arrive yet.
  pair_.reset(manner.extended ? create_extended(device, request)
                              : ibv_create_qp(device.domain(), &request));
  demand(pair_ != nullptr, "there is no queue pair");
  const std::uint32_t first_packet = 0xFFFFF0 + pair_->qp_num % 16;  // soon past the last number
  peer_ = meeting.swap(Address{pair_->qp_num, first_packet, device.gid()});
  to_init(type);
  to_receive(type, mtu);
  to_send(type, first_packet);
  if (type == IBV_QPT_UD) {
    ibv_ah_attr attributes = way();
    handle_.reset(ibv_create_ah(device.domain(), &attributes));
    demand(handle_ != nullptr, "there is no address handle");
  }
}

ibv_ah_attr Link::way() const {
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.grh.sgid_index = gid_index_;
  attributes.grh.dgid = peer_.gid;
  attributes.grh.hop_limit = 64;
  attributes.port_num = 1;
  return attributes;
}

void Link::to_init(ibv_qp_type type) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = 1;
  to.qkey = kKey;
  to.qp_access_flags = manner_.access;
  const int key = type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  demand(ibv_modify_qp(pair_.get(), &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | key) == 0,
         "a queue pair does not come to INIT");
}

void Link::to_receive(ibv_qp_type type, ibv_mtu mtu) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_RTR;
  to.ah_attr = way();
  to.path_mtu = mtu;
  to.dest_qp_num = peer_.number;
  to.rq_psn = peer_.first_packet;
  to.max_dest_rd_atomic = manner_.max_dest_rd_atomic;
  // 0.64 ms.
  to.min_rnr_timer = 12;
  int mask = IBV_QP_STATE;
  if (type != IBV_QPT_UD) {
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  }
  if (type == IBV_QPT_RC) {
    mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  demand(ibv_modify_qp(pair_.get(), &to, mask) == 0, "a queue pair does not come to RTR");
}

void Link::to_send(ibv_qp_type type, std::uint32_t first_packet) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_RTS;
  to.sq_psn = first_packet;
  to.timeout = manner_.timeout == 0 ? ack_timeout() : manner_.timeout;
  to.retry_cnt = manner_.retries;
  to.rnr_retry = manner_.rnr_retries;
  to.max_rd_atomic = 4;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (type == IBV_QPT_RC) {
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  demand(ibv_modify_qp(pair_.get(), &to, mask) == 0, "a queue pair does not come to RTS");
}

}  // namespace weft::conformance
