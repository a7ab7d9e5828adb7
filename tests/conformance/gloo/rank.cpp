// Owns one rank of a Gloo program over weft: every collective, and every element compared.
//
//   weft_gloo_rank FOLDER RANK RANKS LARGEST [dies|slow|misuse|shorter|goes]
//
// The ranks find each other through FOLDER. With `dies` the last rank kills itself under way: exit
// code 3 says that an IoException told so. With `slow` it only stands still, longer than the others
// want to wait. The others are what programs do wrong.
#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "integration/gloo/device.hpp"

namespace weft {
namespace {

using Algorithm = ::gloo::AllreduceOptions::Algorithm;
using Numbers = std::vector<std::uint32_t>;

void check(bool right, const std::string& what) {
  if (!right) {
    std::fprintf(stderr, "gloo_rank: %s\n", what.c_str());
    std::exit(1);
  }
}

// Whole numbers, so that sums are the same in any order.
std::uint32_t number(int rank, std::size_t index, int turn) {
  return static_cast<std::uint32_t>(index * 2654435761U) +
         static_cast<std::uint32_t>(rank * 97 + turn);
}
Numbers numbers(int rank, std::size_t count, int turn) {
  Numbers all(count);
  for (std::size_t i = 0; i < count; ++i) {
    all[i] = number(rank, i, turn);
  }
  return all;
}

class Rank {
 public:
  Rank(std::shared_ptr<::gloo::rendezvous::Context> context, int turn)
      : context_(std::move(context)), turn_(turn), rank_(context_->rank), ranks_(context_->size) {}

  void all_reduce(std::size_t count, Algorithm algorithm) {
    const Numbers in = numbers(rank_, count, turn_);
    Numbers out(count, 0xA5A5A5A5);
    ::gloo::AllreduceOptions options(context_);
    options.setAlgorithm(algorithm);
    options.setTag(next_tag());
    options.setInput(const_cast<std::uint32_t*>(in.data()), count);
    options.setOutput(out.data(), count);
    options.setReduceFunction([](void* to, const void* a, const void* b, std::size_t n) {
      ::gloo::sum<std::uint32_t>(to, a, b, n);
    });
    ::gloo::allreduce(options);
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t sum = 0;
      for (int from = 0; from < ranks_; ++from) {
        sum += number(from, i, turn_);
      }
      check(out[i] == sum, "all-reduce, element " + std::to_string(i));
    }
  }
  void all_gather(std::size_t count) {
    Numbers in = numbers(rank_, count, turn_);
    Numbers out(count * static_cast<std::size_t>(ranks_), 7);
    ::gloo::AllgatherOptions options(context_);
    options.setTag(next_tag());
    options.setInput(in.data(), in.size());
    options.setOutput(out.data(), out.size());
    ::gloo::allgather(options);
    compare(out, count, "all-gather");
  }
  void all_to_all(std::size_t count) {
    Numbers in(count * static_cast<std::size_t>(ranks_));
    for (int to = 0; to < ranks_; ++to) {
      const Numbers part = numbers(rank_ * 100 + to, count, turn_);
      std::copy(part.begin(), part.end(), in.begin() + to * static_cast<long>(count));
    }
    Numbers out(in.size(), 7);
    ::gloo::AlltoallOptions options(context_);
    options.setTag(next_tag());
    options.setInput(in.data(), in.size());
    options.setOutput(out.data(), out.size());
    ::gloo::alltoall(options);
    for (int from = 0; from < ranks_; ++from) {
      const Numbers part = numbers(from * 100 + rank_, count, turn_);
      check(std::equal(part.begin(), part.end(), out.begin() + from * static_cast<long>(count)),
            "all-to-all");
    }
  }
  void broadcast(std::size_t count, int root) {
    Numbers data = numbers(rank_, count, turn_);
    ::gloo::BroadcastOptions options(context_);
    options.setTag(next_tag());
    options.setRoot(root);
    options.setOutput(data.data(), count);
    ::gloo::broadcast(options);
    check(data == numbers(root, count, turn_), "broadcast");
  }
  void gather(std::size_t count, int root) {
    Numbers in = numbers(rank_, count, turn_);
    Numbers out(rank_ == root ? count * static_cast<std::size_t>(ranks_) : 0);
    ::gloo::GatherOptions options(context_);
    options.setTag(next_tag());
    options.setRoot(root);
    options.setInput(in.data(), count);
    if (rank_ == root) {
      options.setOutput(out.data(), out.size());
    }
    ::gloo::gather(options);
    if (rank_ == root) {
      compare(out, count, "gather");
    }
  }
  void barrier() {
    ::gloo::BarrierOptions options(context_);
    options.setTag(next_tag());
    ::gloo::barrier(options);
  }

 private:
  void compare(const Numbers& out, std::size_t count, const char* what) {
    for (int from = 0; from < ranks_; ++from) {
      const Numbers part = numbers(from, count, turn_);
      check(std::equal(part.begin(), part.end(), out.begin() + from * static_cast<long>(count)),
            what);
    }
  }
  // Collectives of one context run side by side under tags of their own.
  [[nodiscard]] std::uint32_t next_tag() {
    return static_cast<std::uint32_t>(turn_) << 16 | ++tag_;
  }

  std::shared_ptr<::gloo::rendezvous::Context> context_;
  int turn_;
  int rank_;
  int ranks_;
  std::uint32_t tag_ = 0;
};

void everything(const std::shared_ptr<::gloo::rendezvous::Context>& context, int turn,
                std::size_t largest) {
  Rank rank(context, turn);
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{4}, std::size_t{60}, std::size_t{4096}, std::size_t{65540},
        std::size_t{1} << 20, std::size_t{16} << 20}) {
    if (bytes > largest) {
      break;
    }
    const std::size_t count = bytes / sizeof(std::uint32_t);
    rank.barrier();
    if (bytes != 0) {  // Gloo itself can neither reduce nor gather nothing
      rank.all_reduce(count, Algorithm::RING);
      rank.all_reduce(count, Algorithm::BCUBE);
      rank.all_gather(bytes > (1U << 20) ? count / 8 : count);
      rank.all_to_all(bytes > (1U << 20) ? count / 8 : count);
      rank.gather((count + 3) / 4, context->size - 1);
    }
    for (int root = 0; root < context->size; ++root) {
      rank.broadcast(count, root);
    }
  }
  rank.barrier();
}

bool throws(auto&& f) {
  try {
    f();
  } catch (const ::gloo::Exception&) {
    return true;
  }
  return false;
}

// A buffer that goes before its message has come, while another one of the same memory stays.
void leave_early(const std::shared_ptr<::gloo::rendezvous::Context>& context) {
  const int other = 1 - context->rank;
  std::vector<char> bytes(1000);
  auto stays = context->createUnboundBuffer(bytes.data(), bytes.size());
  stays->recv(other, 6, 0, 10);
  if (context->rank == 0) {
    auto goes = context->createUnboundBuffer(bytes.data(), bytes.size());
    goes->recv(other, 5, 0, 10);
    goes.reset();
  }
  try {
    stays->waitRecv(nullptr, std::chrono::milliseconds(5000));
    check(false, "a message that nobody sends");
  } catch (const ::gloo::IoException& e) {
    check(std::string(e.what()).find("closed the connection") != std::string::npos, e.what());
  }
}

// A message that one side takes for `sent` bytes and the other one for 10, an answer that nobody
// gives.
void misuse(const std::shared_ptr<::gloo::rendezvous::Context>& context, std::size_t sent) {
  const int other = 1 - context->rank;
  std::vector<char> bytes(1000);
  auto buffer = context->createUnboundBuffer(bytes.data(), bytes.size());
  check(throws([&] { buffer->send(other, 1, 1001); }), "an offset outside of the buffer");
  check(throws([&] { buffer->send(other, 1, 1, 1000); }), "a size outside of the buffer");
  check(throws([&] { buffer->send(5, 1); }), "a rank that is not there");
  check(throws([&] { buffer->recv(std::vector<int>{}, 1); }), "a receive from nobody");
  check(throws([&] { context->getPair(other)->createSendBuffer(0, bytes.data(), 1); }),
        "a bound buffer");
  // Somebody else calls a wait off.
  std::thread caller([&] {
    ::usleep(20'000);
    buffer->abortWaitRecv();
  });
  check(!buffer->waitRecv(nullptr, std::chrono::milliseconds::max()), "a wait that was called off");
  caller.join();
  check(throws([&] { context->getPair(other)->connect({1, 2, 3}); }), "a foreign address");
  if (context->rank == 0) {
    buffer->recv(other, 9, 0, 10);
    check(throws([&] { buffer->waitRecv(nullptr, std::chrono::milliseconds(5000)); }),
          "a message of another size");
  } else {
    buffer->send(other, 9, 0, sent);
    check(throws([&] { buffer->waitSend(nullptr, std::chrono::milliseconds(5000)); }),
          "a message of another size");
  }
}

int run(int count, char** words) {
  if (count < 5) {
    std::fprintf(
        stderr,
        "usage: weft_gloo_rank FOLDER RANK RANKS LARGEST [dies|slow|misuse|shorter|goes]\n");
    return 2;
  }
  const int rank = std::atoi(words[2]);
  const int ranks = std::atoi(words[3]);
  const auto largest = static_cast<std::size_t>(std::atoll(words[4]));
  const std::string fate = count > 5 ? words[5] : "";
  std::shared_ptr<::gloo::transport::Device> device = gloo::create_device();
  check(gloo::create_device() != nullptr, "a device for a second group");
  ::gloo::rendezvous::FileStore store(words[1]);
  auto context = std::make_shared<::gloo::rendezvous::Context>(rank, ranks);
  context->setTimeout(std::chrono::milliseconds(fate == "slow" ? 2000 : 60'000));
  context->connectFullMesh(store, device);
  if (fate == "misuse" || fate == "shorter" || fate == "goes") {
    fate == "goes" ? leave_early(context) : misuse(context, fate == "shorter" ? 5 : 20);
    std::printf("rank %d: all right\n", rank);
    return 0;
  }
  everything(context, 1, largest);
  if (!fate.empty()) {
    if (rank == ranks - 1 && fate == "dies") {
      ::raise(SIGKILL);
    }
    try {
      if (rank == ranks - 1) {
        ::sleep(5);
      }
      everything(context, 2, largest);
    } catch (const ::gloo::IoException& e) {
      std::printf("rank %d: %s\n", rank, e.what());
      return 3;
    }
    return 1;
  }
  // Two collectives at a time, from two threads.
  std::thread other([&] { everything(context, 3, largest); });
  everything(context, 4, largest);
  other.join();
  context->closeConnections();
  std::printf("rank %d: all right\n", rank);
  return 0;
}

}  // namespace
}  // namespace weft

int main(int count, char** words) { return weft::run(count, words); }
