// Owns the cases of making and destroying objects.
#include <sys/mman.h>

#include "tests/conformance/verbs/refusals/bench.hpp"

namespace weft::conformance {
namespace {

// How a call that returns an object ends.
template <class Make>
int error_of(Make&& make) {
  errno = 0;
  return make() == nullptr ? errno : 0;
}

void regions(const Bench& bench, Book& book) {
  book.chapter("regions");
  const auto registered = [&](void* at, std::size_t size, int access) {
    return error_of([&] {
      ibv_mr* const region = ibv_reg_mr(bench.domain, at, size, access);
      if (region != nullptr) {
        demand(ibv_dereg_mr(region) == 0, "a region cannot be given back");
      }
      return region;
    });
  };
  // Remote writes need local ones.
  for (int access = 0; access < 32; ++access) {
    const bool good = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) == 0 ||
                      (access & IBV_ACCESS_LOCAL_WRITE) != 0;
    book.check("access " + std::to_string(access), good ? 0 : EINVAL,
               registered(bench.memory, 4096, access));
  }
  book.check("paging on demand", EOPNOTSUPP, registered(bench.memory, 4096, IBV_ACCESS_ON_DEMAND));
  book.check("huge pages", EOPNOTSUPP, registered(bench.memory, 4096, IBV_ACCESS_HUGETLB));
  book.check("relaxed ordering, which is optional", 0,
             registered(bench.memory, 4096, IBV_ACCESS_RELAXED_ORDERING));
  const std::size_t page = 4096;
  void* const shown = mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  book.check("memory that may only be read", 0, registered(shown, page, 0));
  book.check("memory that may only be read, to write", EFAULT,
             registered(shown, page, IBV_ACCESS_LOCAL_WRITE));
  (void)mprotect(shown, page, PROT_NONE);
  book.check("memory that may not be read", EFAULT, registered(shown, page, 0));
  (void)munmap(shown, page);
  book.check("memory that is gone", EFAULT, registered(shown, page, 0));
  book.check("address 0", EFAULT, registered(nullptr, page, 1));
  book.check("the last page", EFAULT,
             registered(reinterpret_cast<void*>(~std::uintptr_t{page - 1}), page - 1, 1));
  book.check("around the end of the address space", EINVAL,
             registered(reinterpret_cast<void*>(~std::uintptr_t{100}), page, 1));
  ibv_pd forged = *bench.domain;
  // A handle that was never given, one that no table can have, and one of another kind of object.
  for (const std::uint32_t handle : {9999U, 0xFFFFFFFFU, bench.queue->handle}) {
    forged.handle = handle;
    book.check("in domain " + std::to_string(handle),
               handle == bench.queue->handle ? EINVAL : ENOENT,
               error_of([&] { return ibv_reg_mr(&forged, bench.memory, page, 1); }));
  }
}

// Sizes at their limit and one beyond. -1 and all ones are what a program hands over that has
// computed a size wrongly.
void completion_queues(const Bench& bench, Book& book) {
  book.chapter("completion queues");
  const auto created = [&](int entries, int vector) {
    return error_of([&] {
      ibv_cq* const queue = ibv_create_cq(bench.context, entries, nullptr, nullptr, vector);
      if (queue != nullptr) {
        demand(ibv_destroy_cq(queue) == 0, "a completion queue cannot be destroyed");
      }
      return queue;
    });
  };
  ibv_device_attr device{};
  demand(ibv_query_device(bench.context, &device) == 0, "the device cannot be asked");
  book.check("of 1", 0, created(1, 0));
  book.check("of as many as there may be", 0, created(device.max_cqe, 0));
  book.check("of one more", EINVAL, created(device.max_cqe + 1, 0));
  book.check("of 0", EINVAL, created(0, 0));
  book.check("of -1", EINVAL, created(-1, 0));
  book.check("with vector -1", EINVAL, created(16, -1));
  book.check("with the next vector", EINVAL, created(16, bench.context->num_comp_vectors));
  ibv_cq* const queue = ibv_create_cq(bench.context, 63, nullptr, nullptr, 0);
  demand(queue != nullptr, "a completion queue cannot be made");
  book.check("resized to 0", EINVAL, ibv_resize_cq(queue, 0));
  book.check("resized to more than there may be", EINVAL, ibv_resize_cq(queue, device.max_cqe + 1));
  book.check("resized", 0, ibv_resize_cq(queue, 200));
  book.check("and it is as large", queue->cqe >= 200);
  demand(ibv_destroy_cq(queue) == 0, "a completion queue cannot be destroyed");
}

// The same for each type, since the checks of one need not be those of another.
void queue_pairs(const Bench& bench, Book& book) {
  book.chapter("queue pairs");
  ibv_device_attr device{};
  demand(ibv_query_device(bench.context, &device) == 0, "the device cannot be asked");
  const auto created = [&](ibv_qp_init_attr request) {
    request.send_cq = request.recv_cq = bench.queue;
    return error_of([&] {
      ibv_qp* const pair = ibv_create_qp(bench.domain, &request);
      if (pair != nullptr) {
        demand(ibv_destroy_qp(pair) == 0, "a queue pair cannot be destroyed");
      }
      return pair;
    });
  };
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    const auto with = [&](auto change) {
      ibv_qp_init_attr request{};
      request.cap = {16, 16, 2, 2, 64};
      request.qp_type = type;
      change(request);
      return created(request);
    };
    const std::string name = "type " + std::to_string(type) + ": ";
    const auto most = static_cast<std::uint32_t>(device.max_qp_wr);
    const auto pieces = static_cast<std::uint32_t>(device.max_sge);
    book.check(name + "a good one", 0, with([](auto&) {}));
    book.check(name + "sends", 0, with([&](auto& to) { to.cap.max_send_wr = most; }));
    book.check(name + "receives", 0, with([&](auto& to) { to.cap.max_recv_wr = most; }));
    book.check(name + "too many sends", EINVAL,
               with([&](auto& to) { to.cap.max_send_wr = most + 1; }));
    book.check(name + "too many receives", EINVAL,
               with([&](auto& to) { to.cap.max_recv_wr = most + 1; }));
    book.check(name + "all ones sends", EINVAL, with([&](auto& to) { to.cap.max_send_wr = ~0U; }));
    book.check(name + "all ones receives", EINVAL,
               with([&](auto& to) { to.cap.max_recv_wr = ~0U; }));
    book.check(name + "too many pieces to send", EINVAL,
               with([&](auto& to) { to.cap.max_send_sge = pieces + 1; }));
    book.check(name + "too many pieces to receive", EINVAL,
               with([&](auto& to) { to.cap.max_recv_sge = pieces + 1; }));
    book.check(name + "too much inline", EINVAL,
               with([&](auto& to) { to.cap.max_inline_data = 513; }));
    book.check(name + "all ones inline", EINVAL,
               with([&](auto& to) { to.cap.max_inline_data = ~0U; }));
  }
  // Neither of the three that there are: 2 is RC, 3 UC and 4 UD.
  for (const int type : {0, 1, 5, 7, 9, 11, 255}) {
    ibv_qp_init_attr request{};
    request.cap = {16, 16, 2, 2, 0};
    request.qp_type = static_cast<ibv_qp_type>(type);
    book.check("of type " + std::to_string(type), created(request) != 0);
  }
}

// A shared queue may be resized, but not below its limit, at which an event is due; and not
// destroyed while a queue pair uses it.
void shared_queues(const Bench& bench, Book& book) {
  book.chapter("shared receive queues");
  ibv_device_attr device{};
  demand(ibv_query_device(bench.context, &device) == 0, "the device cannot be asked");
  const auto created = [&](std::uint32_t entries, std::uint32_t pieces) {
    ibv_srq_init_attr request{nullptr, {entries, pieces, 0}};
    return error_of([&] {
      ibv_srq* const queue = ibv_create_srq(bench.domain, &request);
      if (queue != nullptr) {
        demand(ibv_destroy_srq(queue) == 0, "a queue cannot be destroyed");
      }
      return queue;
    });
  };
  const auto most = static_cast<std::uint32_t>(device.max_srq_wr);
  const auto pieces = static_cast<std::uint32_t>(device.max_srq_sge);
  book.check("of 1", 0, created(1, 1));
  book.check("of 0", EINVAL, created(0, 1));
  book.check("of too many", EINVAL, created(most + 1, 1));
  book.check("of all ones", EINVAL, created(~0U, 1));
  book.check("of too many pieces", EINVAL, created(16, pieces + 1));
  book.check("of all ones pieces", EINVAL, created(16, ~0U));
  ibv_srq_init_attr request{nullptr, {15, 1, 0}};
  ibv_srq* const queue = ibv_create_srq(bench.domain, &request);
  demand(queue != nullptr, "a shared queue cannot be made");
  const auto modified = [&](std::uint32_t entries, std::uint32_t limit, int mask) {
    ibv_srq_attr attributes{entries, 0, limit};
    return ibv_modify_srq(queue, &attributes, mask);
  };
  book.check("a limit above its size", EINVAL, modified(0, 1000, IBV_SRQ_LIMIT));
  book.check("a limit", 0, modified(0, 5, IBV_SRQ_LIMIT));
  book.check("resized to 0", EINVAL, modified(0, 0, IBV_SRQ_MAX_WR));
  book.check("resized to too many", EINVAL, modified(most + 1, 0, IBV_SRQ_MAX_WR));
  book.check("resized below the limit", EINVAL, modified(3, 0, IBV_SRQ_MAX_WR));
  book.check("resized", 0, modified(100, 0, IBV_SRQ_MAX_WR));
  ibv_srq_attr now{};
  book.check("asked", 0, ibv_query_srq(queue, &now));
  book.check("and it is as large", now.max_wr >= 100);
  book.check("and the limit is as before", 5, static_cast<int>(now.srq_limit));
  ibv_qp* const pair = bench.make(IBV_QPT_RC, queue);
  book.check("destroyed under a queue pair", EBUSY, ibv_destroy_srq(queue));
  demand(ibv_destroy_qp(pair) == 0 && ibv_destroy_srq(queue) == 0, "a shared queue");
}

void handles_and_groups(const Bench& bench, Book& book) {
  book.chapter("address handles");
  const auto created = [&](auto change) {
    ibv_ah_attr way = bench.way();
    change(way);
    return error_of([&] {
      ibv_ah* const handle = ibv_create_ah(bench.domain, &way);
      if (handle != nullptr) {
        demand(ibv_destroy_ah(handle) == 0, "a handle cannot be destroyed");
      }
      return handle;
    });
  };
  // The port has three GIDs: of its IPv4 address, and two of IPv6.
  for (const int gid : {0, 1, 2}) {
    book.check("by GID " + std::to_string(gid), 0, created([&](ibv_ah_attr& way) {
                 way.grh.sgid_index = static_cast<std::uint8_t>(gid);
               }));
  }
  for (const int gid : {3, 100, 255}) {
    book.check("by GID " + std::to_string(gid), ENODATA, created([&](ibv_ah_attr& way) {
                 way.grh.sgid_index = static_cast<std::uint8_t>(gid);
               }));
  }
  for (const int port : {0, 2, 255}) {
    book.check("at port " + std::to_string(port), EINVAL,
               created([&](ibv_ah_attr& way) { way.port_num = static_cast<std::uint8_t>(port); }));
  }
  book.check("without GRH", EINVAL, created([](ibv_ah_attr& way) { way.is_global = 0; }));

  book.chapter("multicast");
  ibv_gid group{};
  group.raw[0] = 0xFF;
  group.raw[1] = 0x0E;
  group.raw[15] = 1;
  ibv_gid mapped{};
  // An IPv4 group as RoCE writes it: ::ffff:239.0.0.0.
  mapped.raw[10] = mapped.raw[11] = 0xFF;
  mapped.raw[12] = 239;
  ibv_gid host = bench.gid;
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    ibv_qp* const pair = bench.make(type);
    const int expected = type == IBV_QPT_UD ? 0 : EINVAL;
    const std::string name = "type " + std::to_string(type) + ": ";
    book.check(name + "a group of IPv6", expected, ibv_attach_mcast(pair, &group, 0));
    book.check(name + "once more", expected, ibv_attach_mcast(pair, &group, 0));
    book.check(name + "a group of IPv4", expected, ibv_attach_mcast(pair, &mapped, 0));
    book.check(name + "a host's address", EINVAL, ibv_attach_mcast(pair, &host, 0));
    book.check(name + "leaving what it is not in", EINVAL, ibv_detach_mcast(pair, &host, 0));
    if (type == IBV_QPT_UD) {
      book.check("destroyed in a group", EBUSY, ibv_destroy_qp(pair));
    }
    book.check(name + "leaving", expected, ibv_detach_mcast(pair, &group, 0));
    book.check(name + "leaving again", EINVAL, ibv_detach_mcast(pair, &group, 0));
    book.check(name + "leaving the other", expected, ibv_detach_mcast(pair, &mapped, 0));
    demand(ibv_destroy_qp(pair) == 0, "a queue pair cannot be destroyed");
  }
}

// Everything that stands on a domain or a completion queue, one after the other: EBUSY until it is
// gone.
void busy(const Bench& bench, Book& book) {
  book.chapter("what is in use");
  ibv_pd* const domain = ibv_alloc_pd(bench.context);
  ibv_cq* const queue = ibv_create_cq(bench.context, 16, nullptr, nullptr, 0);
  demand(domain != nullptr && queue != nullptr, "objects");
  ibv_mr* const region = ibv_reg_mr(domain, bench.memory, 4096, 1);
  book.check("a domain under a region", EBUSY, ibv_dealloc_pd(domain));
  demand(ibv_dereg_mr(region) == 0, "a region");
  ibv_ah_attr way = bench.way();
  ibv_ah* const handle = ibv_create_ah(domain, &way);
  book.check("a domain under an address handle", EBUSY, ibv_dealloc_pd(domain));
  demand(ibv_destroy_ah(handle) == 0, "a handle");
  ibv_mw* const window = ibv_alloc_mw(domain, IBV_MW_TYPE_1);
  book.check("a domain under a window", EBUSY, ibv_dealloc_pd(domain));
  demand(ibv_dealloc_mw(window) == 0, "a window");
  ibv_srq_init_attr shared{nullptr, {15, 1, 0}};
  ibv_srq* const srq = ibv_create_srq(domain, &shared);
  book.check("a domain under a shared queue", EBUSY, ibv_dealloc_pd(domain));
  demand(ibv_destroy_srq(srq) == 0, "a shared queue");
  ibv_qp_init_attr request{};
  request.send_cq = request.recv_cq = queue;
  request.cap = {4, 4, 1, 1, 0};
  request.qp_type = IBV_QPT_RC;
  ibv_qp* const pair = ibv_create_qp(domain, &request);
  book.check("a domain under a queue pair", EBUSY, ibv_dealloc_pd(domain));
  book.check("a completion queue under a queue pair", EBUSY, ibv_destroy_cq(queue));
  demand(ibv_destroy_qp(pair) == 0, "a queue pair");
  book.check("a completion queue then", 0, ibv_destroy_cq(queue));
  book.check("a domain then", 0, ibv_dealloc_pd(domain));

  book.chapter("ports");
  ibv_port_attr port{};
  for (const int number : {0, 2, 255}) {
    book.check("port " + std::to_string(number), EINVAL,
               ibv_query_port(bench.context, static_cast<std::uint8_t>(number), &port));
  }
  demand(ibv_query_port(bench.context, 1, &port) == 0, "the port cannot be asked");
  ibv_gid gid{};
  for (int index = 0; index < port.gid_tbl_len; ++index) {
    book.check("GID " + std::to_string(index), 0, ibv_query_gid(bench.context, 1, index, &gid));
  }
  book.check("a GID that is not there",
             ibv_query_gid(bench.context, 1, port.gid_tbl_len, &gid) != 0);
}

}  // namespace

void objects(const Bench& bench, Book& book) {
  regions(bench, book);
  completion_queues(bench, book);
  queue_pairs(bench, book);
  shared_queues(bench, book);
  handles_and_groups(bench, book);
  busy(bench, book);
}

}  // namespace weft::conformance
