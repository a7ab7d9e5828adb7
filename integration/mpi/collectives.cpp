// Owns a program that runs MPI collectives, checks every element and prints the table that people
// know from nccl-tests: time, algorithm bandwidth, bus bandwidth, wrong elements.
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct World {
  int rank = 0;
  int size = 1;
};

// Small whole numbers: sums of them are exact in float, whatever the order.
template <class T>
T element(int rank, std::size_t index) {
  return static_cast<T>((index * 7 + static_cast<std::size_t>(rank) * 13) % 61);
}

template <class T>
MPI_Datatype type_of();
template <>
MPI_Datatype type_of<int>() {
  return MPI_INT;
}
template <>
MPI_Datatype type_of<float>() {
  return MPI_FLOAT;
}

// `count` is the number of elements that nccl-tests calls the size: of the larger of both buffers.
template <class T>
class Collective {
 public:
  Collective(const World& world, std::size_t count)
      : world_(world), count_(count), in_(count), out_(count) {}
  virtual ~Collective() = default;

  // Fills the buffers; afterwards run() is due, once.
  virtual void prepare() {
    for (std::size_t i = 0; i < count_; ++i) {
      in_[i] = element<T>(world_.rank, i);
    }
    std::fill(out_.begin(), out_.end(), static_cast<T>(-1));
  }
  virtual void run(bool in_place) = 0;
  [[nodiscard]] virtual T expected(std::size_t index) const = 0;
  // Which part of out_ (or, in place, of where the result stands) is to be looked at.
  [[nodiscard]] virtual std::size_t results() const { return count_; }
  [[nodiscard]] virtual double bus_factor() const { return 1; }

  [[nodiscard]] std::size_t wrong(bool in_place) const {
    std::size_t count = 0;
    const std::vector<T>& where = in_place ? in_ : out_;
    for (std::size_t i = 0; i < results(); ++i) {
      count += where[i] != expected(i) ? 1U : 0U;
    }
    return count;
  }

 protected:
  [[nodiscard]] int per_rank() const {
    return static_cast<int>(count_ / static_cast<std::size_t>(world_.size));
  }
  [[nodiscard]] T sum(std::size_t index) const {
    T total = 0;
    for (int rank = 0; rank < world_.size; ++rank) {
      total += element<T>(rank, index);
    }
    return total;
  }
  [[nodiscard]] double share() const { return static_cast<double>(world_.size - 1) / world_.size; }

  World world_;
  std::size_t count_;
  std::vector<T> in_;
  std::vector<T> out_;
};

template <class T>
class AllReduce : public Collective<T> {
 public:
  using Collective<T>::Collective;
  void run(bool in_place) override {
    void* const to = in_place ? this->in_.data() : this->out_.data();
    MPI_Allreduce(in_place ? MPI_IN_PLACE : this->in_.data(), to, static_cast<int>(this->count_),
                  type_of<T>(), MPI_SUM, MPI_COMM_WORLD);
  }
  T expected(std::size_t index) const override { return this->sum(index); }
  double bus_factor() const override { return 2 * this->share(); }
};

template <class T>
class AllGather : public Collective<T> {
 public:
  using Collective<T>::Collective;
  void run(bool in_place) override {
    const int n = this->per_rank();
    void* const to = in_place ? this->in_.data() : this->out_.data();
    // In place each rank's part stands where it will stay.
    const void* const from = in_place ? MPI_IN_PLACE : this->in_.data() + n * this->world_.rank;
    MPI_Allgather(from, n, type_of<T>(), to, n, type_of<T>(), MPI_COMM_WORLD);
  }
  T expected(std::size_t index) const override {
    return element<T>(static_cast<int>(index) / this->per_rank(), index);
  }
  double bus_factor() const override { return this->share(); }
};

template <class T>
class ReduceScatter : public Collective<T> {
 public:
  using Collective<T>::Collective;
  void run(bool in_place) override {
    void* const to = in_place ? this->in_.data() : this->out_.data();
    MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : this->in_.data(), to, this->per_rank(),
                             type_of<T>(), MPI_SUM, MPI_COMM_WORLD);
  }
  std::size_t results() const override { return static_cast<std::size_t>(this->per_rank()); }
  T expected(std::size_t index) const override {
    return this->sum(index + results() * static_cast<std::size_t>(this->world_.rank));
  }
  double bus_factor() const override { return this->share(); }
};

template <class T>
class AllToAll : public Collective<T> {
 public:
  using Collective<T>::Collective;
  void run(bool in_place) override {
    const int n = this->per_rank();
    void* const to = in_place ? this->in_.data() : this->out_.data();
    MPI_Alltoall(in_place ? MPI_IN_PLACE : this->in_.data(), n, type_of<T>(), to, n, type_of<T>(),
                 MPI_COMM_WORLD);
  }
  T expected(std::size_t index) const override {
    const auto n = static_cast<std::size_t>(this->per_rank());
    return element<T>(static_cast<int>(index / n),
                      index % n + n * static_cast<std::size_t>(this->world_.rank));
  }
  double bus_factor() const override { return this->share(); }
};

template <class T>
class Broadcast : public Collective<T> {
 public:
  using Collective<T>::Collective;
  void run(bool in_place) override {
    std::vector<T>& buffer = in_place ? this->in_ : this->out_;
    if (this->world_.rank == 0 && !in_place) {
      buffer = this->in_;
    }
    MPI_Bcast(buffer.data(), static_cast<int>(this->count_), type_of<T>(), 0, MPI_COMM_WORLD);
  }
  T expected(std::size_t index) const override { return element<T>(0, index); }
};

template <class T>
class Gather : public Collective<T> {
 public:
  using Collective<T>::Collective;
  void run(bool in_place) override {
    const int n = this->per_rank();
    const bool root = this->world_.rank == 0;
    const void* const from =
        in_place && root ? MPI_IN_PLACE : this->in_.data() + n * this->world_.rank;
    void* const to = in_place ? this->in_.data() : this->out_.data();
    MPI_Gather(from, n, type_of<T>(), to, n, type_of<T>(), 0, MPI_COMM_WORLD);
  }
  std::size_t results() const override { return this->world_.rank == 0 ? this->count_ : 0; }
  T expected(std::size_t index) const override {
    return element<T>(static_cast<int>(index) / this->per_rank(), index);
  }
  double bus_factor() const override { return this->share(); }
};

template <class T>
class Scatter : public Collective<T> {
 public:
  using Collective<T>::Collective;
  void run(bool in_place) override {
    const int n = this->per_rank();
    const bool root = this->world_.rank == 0;
    void* const to = in_place ? (root ? MPI_IN_PLACE : static_cast<void*>(this->in_.data()))
                              : static_cast<void*>(this->out_.data());
    // The buffers of the others are not looked at; theirs is overwritten in place.
    MPI_Scatter(this->in_.data(), n, type_of<T>(), to, n, type_of<T>(), 0, MPI_COMM_WORLD);
  }
  std::size_t results() const override { return static_cast<std::size_t>(this->per_rank()); }
  T expected(std::size_t index) const override {
    return element<T>(0, index + results() * static_cast<std::size_t>(this->world_.rank));
  }
  double bus_factor() const override { return this->share(); }
};

struct Options {
  std::size_t least = 4;
  std::size_t most = std::size_t{64} << 20;
  int iterations = 5;
  bool json = false;
  std::string only;
};

class Report {
 public:
  Report(const World& world, const Options& options) : world_(world), options_(options) {
    if (world.rank == 0 && !options.json) {
      std::printf("%-15s %-6s %-4s %12s %12s %10s %10s %8s\n", "collective", "type", "in", "bytes",
                  "time (us)", "algbw GB/s", "busbw GB/s", "#wrong");
    }
  }

  template <class T>
  void measure(const char* name, const char* type, Collective<T>& collective, std::size_t bytes,
               bool in_place) {
    double best = 1e30;
    std::uint64_t wrong = 0;
    for (int i = 0; i < options_.iterations; ++i) {
      collective.prepare();
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      collective.run(in_place);
      double time = MPI_Wtime() - start;
      MPI_Allreduce(MPI_IN_PLACE, &time, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      best = std::min(best, time);
      wrong += collective.wrong(in_place);
    }
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    total_wrong += wrong;
    if (world_.rank != 0) {
      return;
    }
    const double algorithm = static_cast<double>(bytes) / best / 1e9;
    const double bus = algorithm * collective.bus_factor();
    std::printf(
        options_.json ? "{\"collective\":\"%s\",\"type\":\"%s\",\"in_place\":%s,\"bytes\":%zu,"
                        "\"time_us\":%.2f,\"algbw\":%.3f,\"busbw\":%.3f,\"wrong\":%llu}\n"
                      : "%-15s %-6s %-4s %12zu %12.2f %10.3f %10.3f %8llu\n",
        name, type, in_place ? (options_.json ? "true" : "yes") : (options_.json ? "false" : "no"),
        bytes, best * 1e6, algorithm, bus, static_cast<unsigned long long>(wrong));
  }

  template <template <class> class Kind, class T>
  void sweep(const char* name, const char* type) {
    if (!options_.only.empty() && options_.only != name) {
      return;
    }
    const std::size_t unit = sizeof(T) * static_cast<std::size_t>(world_.size);
    for (std::size_t bytes = options_.least; bytes <= options_.most; bytes *= 16) {
      // Every rank has a part of the same size.
      const std::size_t rounded = (bytes + unit - 1) / unit * unit;
      Kind<T> collective(world_, rounded / sizeof(T));
      measure<T>(name, type, collective, rounded, false);
      measure<T>(name, type, collective, rounded, true);
    }
  }

  template <template <class> class Kind>
  void both_types(const char* name) {
    sweep<Kind, int>(name, "int");
    sweep<Kind, float>(name, "float");
  }

  std::uint64_t total_wrong = 0;

 private:
  World world_;
  Options options_;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--json") {
      options.json = true;
    } else if (word == "-b" && has_value) {
      options.least = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "-e" && has_value) {
      options.most = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "-n" && has_value) {
      options.iterations = std::atoi(argv[++i]);
    } else if (word == "-c" && has_value) {
      options.only = argv[++i];
    } else {
      return false;
    }
  }
  return options.least > 0 && options.iterations > 0;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  World world;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.size);
  Options options;
  if (!parse(argc, argv, options)) {
    if (world.rank == 0) {
      std::fprintf(stderr,
                   "usage: weft-collectives [-b BYTES] [-e BYTES] [-n ITERATIONS] [-c COLLECTIVE] "
                   "[--json]\n");
    }
    MPI_Finalize();
    return 2;
  }
  Report report(world, options);
  report.both_types<AllReduce>("all_reduce");
  report.both_types<AllGather>("all_gather");
  report.both_types<ReduceScatter>("reduce_scatter");
  report.both_types<AllToAll>("all_to_all");
  report.both_types<Broadcast>("broadcast");
  report.both_types<Gather>("gather");
  report.both_types<Scatter>("scatter");
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return report.total_wrong == 0 ? 0 : 1;
}
