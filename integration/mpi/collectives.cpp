// Owns a program that runs MPI collectives, checks every element and prints the table that people
// know from nccl-tests: time, algorithm bandwidth, bus bandwidth, wrong elements.
//
// Each collective is a class that fills its input, makes the call and knows the right result
// (collectives.hpp); here are the loop over sizes and types, the times and the table. The time of
// an iteration is that of the slowest rank.
#include "integration/mpi/collectives.hpp"

#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace weft::mpi {
namespace {

struct Options {
  std::size_t least = 4;
  std::size_t most = std::size_t{64} << 20;
  std::size_t factor = 16;
  int iterations = 5;
  int warm_up = 1;
  bool json = false;
  std::string only;  // names with commas between them; empty: all
};

struct Row {
  const char* name;
  const char* type;
  bool in_place = false;
  std::size_t bytes = 0;
  std::size_t bytes_per_rank = 0;
  double bus_factor = 1;
};

// Times of single runs, each that of the slowest rank.
class Times {
 public:
  void add(double seconds) {
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    sum_ += seconds;
    best_ = count_++ == 0 ? seconds : std::min(best_, seconds);
  }
  [[nodiscard]] double average() const { return sum_ / count_; }
  [[nodiscard]] double best() const { return best_; }

 private:
  double sum_ = 0;
  double best_ = 0;
  int count_ = 0;
};

// A clock that all ranks of a machine share. MPI_Wtime() is not one: it may count from another
// moment in each rank.
std::int64_t machine_time() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// What is measured, checked and printed. Every rank runs the same loops, since every call of MPI in
// them is collective; only rank 0 prints.
class Report {
 public:
  Report(const CommWorld& world, const Options& options) : world_(world), options_(options) {
    MPI_Comm here = MPI_COMM_NULL;
    int ranks_here = 0;
    // How many ranks are on this machine decides whether barrier() can compare their clocks.
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &ranks_here);
    MPI_Comm_free(&here);
    one_clock_ = ranks_here == world.size;
    if (world.rank == 0 && !options.json) {
      std::printf("%-15s %-6s %-4s %12s %12s %12s %12s %10s %10s %8s\n", "collective", "type", "in",
                  "bytes", "of a rank", "time (us)", "best (us)", "algbw GB/s", "busbw GB/s",
                  "#wrong");
    }
  }

  template <template <class> class Kind>
  void both_types(const char* name) {
    sweep<Kind, int>(name, "int");
    sweep<Kind, float>(name, "float");
  }

  // No rank may leave before the last one has come. In turn each rank comes late, by 500 us: that
  // is longer than a barrier takes, so a rank that does not wait is seen to leave too early. Only
  // where all ranks are on one machine do they have one clock to compare. The time of the barrier
  // is measured afterwards, when no rank is late.
  void barrier() {
    if (!wanted("barrier")) {
      return;
    }
    Times times;
    std::uint64_t wrong = 0;
    for (int i = -options_.warm_up; i < options_.iterations; ++i) {
      MPI_Barrier(MPI_COMM_WORLD);
      if (turn(i) == world_.rank) {
        ::usleep(500);
      }
      std::int64_t last = machine_time();
      MPI_Barrier(MPI_COMM_WORLD);
      const std::int64_t left = machine_time();
      MPI_Allreduce(MPI_IN_PLACE, &last, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
      wrong += one_clock_ && left < last ? 1U : 0U;
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      MPI_Barrier(MPI_COMM_WORLD);
      const double time = MPI_Wtime() - start;
      if (i >= 0) {
        times.add(time);
      }
    }
    print({"barrier", "none", false, 0, 0, 0}, times, wrong);
  }

  [[nodiscard]] bool all_right() const { return total_wrong_ == 0; }

 private:
  [[nodiscard]] bool wanted(const std::string& name) const {
    return options_.only.empty() ||
           ("," + options_.only + ",").find("," + name + ",") != std::string::npos;
  }
  // Also numbers runs of the warm-up, which are negative, from 0 on.
  [[nodiscard]] int turn(int iteration) const {
    return (iteration + options_.warm_up) % world_.size;
  }

  template <template <class> class Kind, class T>
  void sweep(const char* name, const char* type) {
    if (!wanted(name)) {
      return;
    }
    // Where a buffer is divided between ranks (kParts), all parts have the same size, of one
    // element at least; sizes are rounded up to that.
    const std::size_t parts = Kind<T>::kParts ? static_cast<std::size_t>(world_.size) : 1;
    const std::size_t unit = sizeof(T) * parts;
    for (std::size_t bytes = options_.least; bytes <= options_.most; bytes *= options_.factor) {
      const std::size_t rounded = (bytes + unit - 1) / unit * unit;
      Kind<T> collective(world_, rounded / sizeof(T));
      for (const bool in_place : {false, true}) {
        measure(collective,
                {name, type, in_place, rounded, rounded / parts, collective.bus_factor()});
      }
    }
  }

  // Preparing and checking lie outside the measured time. Each run is checked, also those of the
  // warm-up: a wrong element in a run that is not measured is a bug as well.
  template <class T>
  void measure(Collective<T>& collective, const Row& row) {
    Times times;
    std::uint64_t wrong = 0;
    for (int i = -options_.warm_up; i < options_.iterations; ++i) {
      collective.prepare(turn(i));
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      collective.run(row.in_place);
      const double time = MPI_Wtime() - start;
      wrong += collective.wrong(row.in_place);
      if (i >= 0) {
        times.add(time);
      }
    }
    print(row, times, wrong);
  }

  void print(const Row& row, const Times& times, std::uint64_t wrong) {
    // Every rank must know the sum, because the exit code of each says whether all was right.
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    total_wrong_ += wrong;
    if (world_.rank != 0) {
      return;
    }
    const double algorithm = static_cast<double>(row.bytes) / times.average() / 1e9;
    // Bus bandwidth as in nccl-tests: what each rank must move at least, so that collectives of
    // different kinds and sizes of the job can be compared.
    const double bus = algorithm * row.bus_factor;
    const double average_us = times.average() * 1e6;
    const double best_us = times.best() * 1e6;
    const auto wrong_elements = static_cast<unsigned long long>(wrong);
    if (options_.json) {
      std::printf(
          "{\"collective\":\"%s\",\"type\":\"%s\",\"in_place\":%s,\"ranks\":%d,\"bytes\":%zu,"
          "\"bytes_per_rank\":%zu,\"iterations\":%d,\"time_us\":%.2f,\"best_us\":%.2f,"
          "\"algbw\":%.3f,\"busbw\":%.3f,\"wrong\":%llu}\n",
          row.name, row.type, row.in_place ? "true" : "false", world_.size, row.bytes,
          row.bytes_per_rank, options_.iterations, average_us, best_us, algorithm, bus,
          wrong_elements);
    } else {
      std::printf("%-15s %-6s %-4s %12zu %12zu %12.2f %12.2f %10.3f %10.3f %8llu\n", row.name,
                  row.type, row.in_place ? "yes" : "no", row.bytes, row.bytes_per_rank, average_us,
                  best_us, algorithm, bus, wrong_elements);
    }
    std::fflush(stdout);
  }

  CommWorld world_;
  Options options_;
  bool one_clock_ = false;
  std::uint64_t total_wrong_ = 0;
};

constexpr double kMaxBytes = 1 << 30;  // counts of MPI are ints

constexpr const char* kCollectives[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                        "broadcast",  "gather",     "scatter",        "barrier"};

bool known(const std::string& names) {
  for (std::size_t at = 0; at <= names.size();
       at = std::min(names.find(',', at), names.size()) + 1) {
    const std::string name = names.substr(at, names.find(',', at) - at);
    if (std::find(std::begin(kCollectives), std::end(kCollectives), name) ==
        std::end(kCollectives)) {
      return false;
    }
  }
  return true;
}

// As nccl-tests takes sizes: a number, and K, M or G of 1024 each; 0 if it is none.
std::size_t parse_size(const char* text) {
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  const std::string unit = end;
  constexpr const char* kUnits = "kmg";
  double factor = 1;
  if (!unit.empty()) {
    const char* const found =
        std::strchr(kUnits, std::tolower(static_cast<unsigned char>(unit[0])));
    if (unit.size() != 1 || found == nullptr) {
      return 0;
    }
    factor = static_cast<double>(std::size_t{1024} << (10 * (found - kUnits)));
  }
  const double size = number * factor;
  return end != text && size >= 1 && size <= kMaxBytes ? static_cast<std::size_t>(size) : 0;
}

// Every rank parses the same words and comes to the same answer, so none needs to be told.
bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json") {
      options.json = true;
      continue;
    }
    if (i + 1 == argc) {
      return false;
    }
    const char* const value = argv[++i];
    if (word == "-b") {
      options.least = parse_size(value);
    } else if (word == "-e") {
      options.most = parse_size(value);
    } else if (word == "-f") {
      options.factor = std::strtoull(value, nullptr, 10);
    } else if (word == "-n") {
      options.iterations = std::atoi(value);
    } else if (word == "-w") {
      options.warm_up = std::atoi(value);
    } else if (word == "-c") {
      options.only = value;
    } else {
      return false;
    }
  }
  return options.least > 0 && options.most > 0 && options.factor > 1 && options.iterations > 0 &&
         options.warm_up >= 0 && (options.only.empty() || known(options.only));
}

constexpr const char* kUsage =
    "usage: weft-collectives [OPTIONS], under mpirun\n"
    "  -b BYTES      smallest size (4); 64K, 16M and 1G mean 1024 times as many each\n"
    "  -e BYTES      largest size (64M; 1G at most)\n"
    "  -f FACTOR     from one size to the next (16)\n"
    "  -n NUMBER     measured runs of each (5)\n"
    "  -w NUMBER     runs before that, checked but not measured (1)\n"
    "  -c NAME,...   all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, gather,\n"
    "                scatter, barrier (all of them)\n"
    "  --json        one JSON object per line\n"
    "Sizes are those of the larger buffer; where each rank has a part of it they are rounded up\n"
    "to an element of each. The root changes from run to run. Times are the slowest rank's.\n";

int run(int argc, char** argv) {
  CommWorld world;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.size);
  Options options;
  if (!parse(argc, argv, options)) {
    if (world.rank == 0) {
      std::fputs(kUsage, stderr);
    }
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
  report.barrier();
  MPI_Barrier(MPI_COMM_WORLD);
  return report.all_right() ? 0 : 1;
}

}  // namespace
}  // namespace weft::mpi

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int code = weft::mpi::run(argc, argv);
  MPI_Finalize();
  return code;
}
