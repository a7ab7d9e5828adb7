// Owns one rank of a program that measures Gloo's collectives over whatever device Gloo gives it
// for TCP. It knows nothing of weft: libgloo-weft.so is loaded before it, or is not.
//
//   weft_gloo_bench FOLDER RANK RANKS OPERATION BYTES WARM_UP ITERATIONS
//
// OPERATION: all_reduce, all_to_all or barrier. The ranks find each other through FOLDER. Rank 0
// prints one JSON object.
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

using Context = std::shared_ptr<gloo::rendezvous::Context>;

struct Job {
  std::string operation;
  std::size_t bytes = 0;
  int warm_up = 0;
  int iterations = 0;
};

// Whole numbers, so that sums are exact in any order.
float number(int rank, std::size_t index) {
  return static_cast<float>((index * 7 + static_cast<std::size_t>(rank)) % 1000);
}

class Bench {
 public:
  Bench(Context context, const Job& job)
      : context_(std::move(context)),
        job_(job),
        input_(job.bytes / sizeof(float)),
        output_(input_.size()) {
    for (std::size_t i = 0; i < input_.size(); ++i) {
      input_[i] = number(context_->rank, i);
    }
  }

  // Microseconds of an iteration.
  double run() {
    for (int i = 0; i < job_.warm_up; ++i) {
      once();
    }
    barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < job_.iterations; ++i) {
      once();
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    barrier();
    return took.count() / job_.iterations;
  }

  // Elements of the last iteration.
  [[nodiscard]] std::size_t wrong() const {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < output_.size(); ++i) {
      wrong += output_[i] == right(i) ? 0U : 1U;
    }
    return wrong;
  }

 private:
  void once() {
    if (job_.operation == "barrier") {
      barrier();
    } else if (job_.operation == "all_reduce") {
      gloo::AllreduceOptions options(context_);
      options.setTag(tag_++);
      options.setInput(input_.data(), input_.size());
      options.setOutput(output_.data(), output_.size());
      options.setReduceFunction([](void* to, const void* a, const void* b, std::size_t count) {
        gloo::sum<float>(to, a, b, count);
      });
      gloo::allreduce(options);
    } else {
      gloo::AlltoallOptions options(context_);
      options.setTag(tag_++);
      options.setInput(input_.data(), input_.size());
      options.setOutput(output_.data(), output_.size());
      gloo::alltoall(options);
    }
  }
  void barrier() {
    gloo::BarrierOptions options(context_);
    options.setTag(tag_++);
    gloo::barrier(options);
  }

  [[nodiscard]] float right(std::size_t index) const {
    if (job_.operation == "barrier") {
      return 0;
    }
    if (job_.operation == "all_reduce") {
      float sum = 0;
      for (int rank = 0; rank < context_->size; ++rank) {
        sum += number(rank, index);
      }
      return sum;
    }
    const std::size_t part = output_.size() / static_cast<std::size_t>(context_->size);
    return number(static_cast<int>(index / part),
                  static_cast<std::size_t>(context_->rank) * part + index % part);
  }

  Context context_;
  Job job_;
  std::vector<float> input_;
  std::vector<float> output_;
  std::uint32_t tag_ = 1;
};

int run(char** words) {
  const int rank = std::atoi(words[2]);
  const int ranks = std::atoi(words[3]);
  const Job job{words[4], static_cast<std::size_t>(std::atoll(words[5])), std::atoi(words[6]),
                std::atoi(words[7])};
  gloo::transport::tcp::attr where;
  where.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(where);
  gloo::rendezvous::FileStore store(words[1]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  Bench bench(context, job);
  const double us = bench.run();
  const std::size_t wrong = bench.wrong();
  if (rank == 0) {
    std::printf("{\"device\": \"%s\", \"us\": %.3f, \"wrong\": %zu}\n", device->str().c_str(), us,
                wrong);
  }
  context->closeConnections();
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  const std::string operation = count == 8 ? words[4] : "";
  if (operation != "all_reduce" && operation != "all_to_all" && operation != "barrier") {
    std::fprintf(stderr,
                 "usage: weft_gloo_bench FOLDER RANK RANKS all_reduce|all_to_all|barrier BYTES "
                 "WARM_UP ITERATIONS\n");
    return 2;
  }
  return run(words);
}
