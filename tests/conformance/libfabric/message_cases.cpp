// Owns the cases of messages: plain, tagged, unexpected, cancelled, injected, with data.
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "tests/conformance/libfabric/cases.hpp"
#include "tests/conformance/libfabric/endpoint.hpp"

namespace weft::conformance {
namespace {

// At and beside the device's largest send (8928 bytes) and the limits between the provider's
// protocols.
constexpr std::size_t kSizes[] = {0,    1,     64,     4095,    4096,   8000,
                                  8929, 65536, 100000, 1 << 20, 3 << 20};

void message() {
  Endpoint e;
  for (std::uint32_t round = 0; round < std::size(kSizes); ++round) {
    const std::size_t size = kSizes[round];
    Buffer out(e.domain, size);
    Buffer in(e.domain, size);
    out.fill(round);
    fi_context contexts[2];
    e.post([&] { return fi_recv(e.ep, in.data(), size, in.desc(), e.peer, &contexts[0]); });
    e.barrier();
    e.post([&] { return fi_send(e.ep, out.data(), size, out.desc(), e.peer, &contexts[1]); });
    e.wait_for(2);
    in.check(round, 0, size);
    e.barrier();
  }
}

// Receives are posted in another order than the messages are sent: only the tags can bring them
// together.
void tagged() {
  Endpoint e;
  constexpr std::size_t kSize = 20000;
  std::vector<std::unique_ptr<Buffer>> in;
  std::vector<std::unique_ptr<Buffer>> out;
  std::vector<fi_context> contexts(8);
  const std::uint64_t wanted[] = {3, 1, 4, 2};
  for (std::size_t i = 0; i < 4; ++i) {
    in.push_back(std::make_unique<Buffer>(e.domain, kSize));
    out.push_back(std::make_unique<Buffer>(e.domain, kSize));
    out[i]->fill(static_cast<std::uint32_t>(i + 1));
    // The upper bits are ignored by the receiver.
    e.post([&] {
      return fi_trecv(e.ep, in[i]->data(), kSize, in[i]->desc(), e.peer, wanted[i], 0xFF00,
                      &contexts[i]);
    });
  }
  e.barrier();
  for (std::size_t i = 0; i < 4; ++i) {
    e.post([&] {
      return fi_tsend(e.ep, out[i]->data(), kSize, out[i]->desc(), e.peer, (i + 1) | 0x5500,
                      &contexts[4 + i]);
    });
  }
  e.wait_for(8);
  for (std::size_t i = 0; i < 4; ++i) {
    in[i]->check(static_cast<std::uint32_t>(wanted[i]), 0, kSize);
  }
  e.barrier();
}

// Messages without a posted receive yet, of the provider's eager, medium and long protocols; taken
// in the opposite order where tags tell them apart.
void come_unexpected(std::size_t count, std::size_t size, bool tagged_ones) {
  Endpoint e("0." + std::to_string(size) + (tagged_ones ? "t" : "m"));
  Buffer out(e.domain, count * size);
  Buffer in(e.domain, count * size);
  std::vector<fi_context> contexts(2 * count);
  out.fill(9);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint8_t* const from = out.data() + i * size;
    e.post([&] {
      return tagged_ones ? fi_tsend(e.ep, from, size, out.desc(), e.peer, i, &contexts[i])
                         : fi_send(e.ep, from, size, out.desc(), e.peer, &contexts[i]);
    });
  }
  e.barrier();
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t i = tagged_ones ? count - 1 - k : k;
    std::uint8_t* const to = in.data() + i * size;
    fi_context* const context = &contexts[count + i];
    e.post([&] {
      return tagged_ones ? fi_trecv(e.ep, to, size, in.desc(), e.peer, i, 0, context)
                         : fi_recv(e.ep, to, size, in.desc(), e.peer, context);
    });
  }
  e.wait_for(2 * count);
  in.check(9, 0, count * size);
  e.barrier();
}

void unexpected() {
  for (const bool tagged_ones : {true, false}) {
    come_unexpected(200, 3000, tagged_ones);
    come_unexpected(20, 30000, tagged_ones);
    come_unexpected(8, 200'000, tagged_ones);
    come_unexpected(2, 2'000'000, tagged_ones);
  }
}

// One large buffer takes many messages, each behind the one before. The provider may give it back
// by a completion of its own, which has no bytes.
void multi_receive() {
  Endpoint e;
  constexpr std::size_t kCount = 64;
  constexpr std::size_t kSize = 512;
  Buffer out(e.domain, kSize);
  Buffer in(e.domain, kCount * kSize);
  out.fill(4);
  fi_context receive;
  std::vector<fi_context> contexts(kCount);
  iovec piece{in.data(), in.size()};
  void* desc = in.desc();
  fi_msg request{};
  request.msg_iov = &piece;
  request.desc = &desc;
  request.iov_count = 1;
  request.addr = FI_ADDR_UNSPEC;
  request.context = &receive;
  std::size_t least = kSize;  // the buffer is given back when less than that is left
  require_ok(fi_setopt(&e.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least),
             "fi_setopt");
  e.post([&] { return fi_recvmsg(e.ep, &request, FI_MULTI_RECV); });
  e.barrier();
  for (std::size_t i = 0; i < kCount; ++i) {
    e.post([&] { return fi_send(e.ep, out.data(), kSize, out.desc(), e.peer, &contexts[i]); });
  }
  std::size_t received = 0;
  std::size_t given_back_early = 0;
  for (std::size_t sent = 0; received < kCount || sent < kCount;) {
    const fi_cq_tagged_entry entry = e.wait();
    const bool is_receive = (entry.flags & FI_RECV) != 0;
    // Either with its last message, or by itself.
    const bool is_given_back = (entry.flags & FI_MULTI_RECV) != 0;
    if (is_receive && entry.len > 0) {
      require(entry.len == kSize, "a message of another length");
      in.check(4, static_cast<std::size_t>(static_cast<std::uint8_t*>(entry.buf) - in.data()),
               kSize);
      ++received;
    } else if (!is_receive && !is_given_back) {
      ++sent;
    }
    if (is_given_back && received < kCount) {
      ++given_back_early;
      piece = {in.data() + received * kSize, in.size() - received * kSize};
      e.post([&] { return fi_recvmsg(e.ep, &request, FI_MULTI_RECV); });
    }
  }
  // Libfabric 2 does not hear of `least` once an endpoint is enabled.
  const bool is_deaf = FI_MAJOR(fi_version()) > 1;
  require(given_back_early <= (is_deaf ? kCount / 2 : 0), "a buffer is given back with room in it");
  e.barrier();
}

// Some of many receives are cancelled, among them one in the middle of three with the same tag.
// They never match, and what was meant for them waits for a later receive.
void cancel() {
  Endpoint e;
  constexpr std::size_t kCount = 12;
  constexpr std::size_t kSize = 5000;
  constexpr std::uint64_t kTags[kCount] = {1, 2, 3, 4, 5, 6, 50, 50, 50, 7, 8, 9};
  const auto cancelled = [](std::size_t i) { return i == 1 || i == 4 || i == 7 || i == 11; };
  Buffer in(e.domain, kCount * kSize);
  Buffer out(e.domain, kSize);
  std::vector<fi_context> contexts(2 * kCount);
  in.clear();
  out.fill(2);
  for (std::size_t i = 0; i < kCount; ++i) {
    e.post([&] {
      return fi_trecv(e.ep, in.data() + i * kSize, kSize, in.desc(), e.peer, kTags[i], 0,
                      &contexts[i]);
    });
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    if (cancelled(i)) {
      require_ok(fi_cancel(&e.ep->fid, &contexts[i]), "fi_cancel");
      const fi_cq_err_entry error = e.wait_error();
      require(error.err == FI_ECANCELED && error.op_context == &contexts[i],
              "not the cancelled receive");
    }
  }
  e.barrier();
  for (std::size_t i = 0; i < kCount; ++i) {  // one message for each, also for the cancelled
    e.post([&] {
      return fi_tsend(e.ep, out.data(), kSize, out.desc(), e.peer, kTags[i], &contexts[kCount + i]);
    });
  }
  e.wait_for(kCount + kCount - 4);  // sends of this size do not wait for a receive
  for (std::size_t i = 0; i < kCount; ++i) {
    if (cancelled(i)) {
      require(in.is_clear(i * kSize, kSize), "a cancelled receive was written to");
    } else {
      in.check(2, i * kSize, kSize);
    }
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    if (cancelled(i)) {
      e.post([&] {
        return fi_trecv(e.ep, in.data() + i * kSize, kSize, in.desc(), e.peer, kTags[i], 0,
                        &contexts[i]);
      });
      e.wait_for(1);
      in.check(2, i * kSize, kSize);
    }
  }
  e.barrier();
}

// The caller's memory is its own again at once.
void inject() {
  Endpoint e;
  const std::size_t most = e.info->tx_attr->inject_size;
  for (const std::size_t size : {std::size_t{1}, std::size_t{32}, most}) {
    Buffer in(e.domain, 4 * size);
    std::vector<std::uint8_t> small(size);
    fi_context contexts[4];
    for (std::size_t i = 0; i < 4; ++i) {
      std::uint8_t* const to = in.data() + i * size;
      e.post([&] {
        return i < 2 ? fi_trecv(e.ep, to, size, in.desc(), e.peer, 8 + i, 0, &contexts[i])
                     : fi_recv(e.ep, to, size, in.desc(), e.peer, &contexts[i]);
      });
    }
    e.barrier();
    const auto put = [&](std::uint8_t value, const std::function<ssize_t()>& call) {
      std::memset(small.data(), value, size);
      e.post(call);
      std::memset(small.data(), 0, size);
    };
    // The memory is overwritten at once, so that a provider that reads it later sends the wrong
    // bytes.
    put(11, [&] { return fi_tinject(e.ep, small.data(), size, e.peer, 8); });
    put(22, [&] { return fi_tinjectdata(e.ep, small.data(), size, 0xD1, e.peer, 9); });
    put(33, [&] { return fi_inject(e.ep, small.data(), size, e.peer); });
    put(44, [&] { return fi_injectdata(e.ep, small.data(), size, 0xD2, e.peer); });
    for (int i = 0; i < 4; ++i) {
      const fi_cq_tagged_entry entry = e.wait();
      const bool has_data = entry.op_context == &contexts[1] || entry.op_context == &contexts[3];
      require(((entry.flags & FI_REMOTE_CQ_DATA) != 0) == has_data, "data, or none, by mistake");
      require(!has_data || entry.data == (entry.op_context == &contexts[1] ? 0xD1U : 0xD2U),
              "other data");
    }
    for (std::size_t i = 0; i < 4 * size; ++i) {
      require(in.data()[i] == 11 * (i / size + 1),
              "the bytes at the time of the call did not arrive");
    }
    e.barrier();
  }
}

// 64 bits beside a message, of every protocol, plain and tagged.
void cq_data() {
  Endpoint e;
  for (const std::size_t size : {std::size_t{0}, std::size_t{100}, std::size_t{8000},
                                 std::size_t{50000}, std::size_t{1} << 20}) {
    for (const bool tagged_one : {false, true}) {
      const std::uint64_t data = 0xCAFE0000 + size + (tagged_one ? 1 : 0);
      Buffer out(e.domain, size);
      Buffer in(e.domain, size);
      fi_context contexts[2];
      out.fill(3);
      e.post([&] {
        return tagged_one ? fi_trecv(e.ep, in.data(), size, in.desc(), e.peer, 6, 0, &contexts[0])
                          : fi_recv(e.ep, in.data(), size, in.desc(), e.peer, &contexts[0]);
      });
      e.barrier();
      e.post([&] {
        return tagged_one
                   ? fi_tsenddata(e.ep, out.data(), size, out.desc(), data, e.peer, 6, &contexts[1])
                   : fi_senddata(e.ep, out.data(), size, out.desc(), data, e.peer, &contexts[1]);
      });
      bool seen = false;
      for (int i = 0; i < 2; ++i) {
        const fi_cq_tagged_entry entry = e.wait();
        seen = seen || (entry.op_context == &contexts[0] &&
                        (entry.flags & FI_REMOTE_CQ_DATA) != 0 && entry.data == data);
      }
      require(seen, "no data with the completion");
      in.check(3, 0, size);
      e.barrier();
    }
  }
}

constexpr Case kCases[] = {{"message", message},       {"tagged", tagged},
                           {"unexpected", unexpected}, {"multi_receive", multi_receive},
                           {"cancel", cancel},         {"inject", inject},
                           {"cq_data", cq_data}};

}  // namespace

std::span<const Case> message_cases() { return kCases; }

}  // namespace weft::conformance
