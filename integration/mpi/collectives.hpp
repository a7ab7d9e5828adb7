// Owns the collectives: what each rank gives, what it must find afterwards, and how busy that keeps
// its link.
//
// Every rank computes what it must find from the number of the rank that gave it and from the place
// in the buffer. So the check needs no communication, which could be wrong as well.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace weft::mpi {

struct CommWorld {
  int rank = 0;
  int size = 1;
};

template <class T>
MPI_Datatype type_of();
template <>
inline MPI_Datatype type_of<int>() {
  return MPI_INT;
}
template <>
inline MPI_Datatype type_of<float>() {
  return MPI_FLOAT;
}

// What stands where: small whole numbers, so that sums of them are exact in float whatever the
// order in which MPI adds. The value depends on the index and, once every 4096 elements, on the
// row: so a block that lands one row further is noticed, although the indices in a row repeat every
// 1021.
class KnownValues {
 public:
  explicit KnownValues(int ranks) {
    for (std::size_t phase = 0; phase < kValues; ++phase) {
      for (int rank = 0; rank < ranks; ++rank) {
        sums_[phase] += static_cast<std::uint32_t>(of(rank, phase));
      }
    }
  }
  static std::size_t phase(std::size_t index) { return (index * 7 + (index >> 12) * 31) % kValues; }
  static std::size_t at(int rank, std::size_t index) { return of(rank, phase(index)); }
  [[nodiscard]] std::uint32_t sum(std::size_t index) const { return sums_[phase(index)]; }

 private:
  static constexpr std::size_t kValues = 1021;
  static std::size_t of(int rank, std::size_t phase) {
    return (phase + static_cast<std::size_t>(rank) * 13) % kValues;
  }
  std::array<std::uint32_t, kValues> sums_{};
};

// `count` is the number of elements that nccl-tests calls the size: of the larger of both buffers.
template <class T>
class Collective {
 public:
  // Each rank has a part of it; else all of it.
  static constexpr bool kParts = true;

  Collective(const CommWorld& world, std::size_t count)
      : world_(world), count_(count), values_(world.size), in_(count), out_(count) {}
  virtual ~Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  // Fills the buffers; afterwards run() is due, once, because in place it overwrites its input. The
  // output is filled with -1, which no result is. `root` is for collectives that have one.
  void prepare(int root) {
    root_ = root;
    for (std::size_t i = 0; i < count_; ++i) {
      in_[i] = element(world_.rank, i);
    }
    std::fill(out_.begin(), out_.end(), static_cast<T>(-1));
  }
  virtual void run(bool in_place) = 0;
  [[nodiscard]] std::size_t wrong(bool in_place) const {
    std::size_t count = 0;
    const std::vector<T>& where = in_place ? in_ : out_;
    const std::size_t first = first_result(in_place);
    for (std::size_t i = 0; i < results(); ++i) {
      count += where[first + i] != expected(i) ? 1U : 0U;
    }
    return count;
  }
  // What passes the link of a rank, as a share of the size: the factor that nccl-tests uses for the
  // bus bandwidth of that collective.
  [[nodiscard]] virtual double bus_factor() const { return share(); }

 protected:
  [[nodiscard]] virtual T expected(std::size_t index) const = 0;
  // How much of out_ (or, in place, of where the result stands) is to be looked at.
  [[nodiscard]] virtual std::size_t results() const { return count_; }
  [[nodiscard]] virtual std::size_t first_result(bool /*in_place*/) const { return 0; }

  [[nodiscard]] int per_rank() const {
    return static_cast<int>(count_ / static_cast<std::size_t>(world_.size));
  }
  [[nodiscard]] bool is_root() const { return world_.rank == root_; }
  [[nodiscard]] static T element(int rank, std::size_t index) {
    return static_cast<T>(KnownValues::at(rank, index));
  }
  // Of what consists of all ranks' own parts, in their order.
  [[nodiscard]] T gathered(std::size_t index) const {
    return element(static_cast<int>(index / static_cast<std::size_t>(per_rank())), index);
  }
  [[nodiscard]] const void* own_part() const { return in_.data() + per_rank() * world_.rank; }
  [[nodiscard]] void* result(bool in_place) { return in_place ? in_.data() : out_.data(); }
  [[nodiscard]] T sum(std::size_t index) const { return static_cast<T>(values_.sum(index)); }
  [[nodiscard]] double share() const { return static_cast<double>(world_.size - 1) / world_.size; }

  CommWorld world_;
  std::size_t count_;
  KnownValues values_;
  int root_ = 0;
  std::vector<T> in_;
  std::vector<T> out_;
};

// Twice the share: a ring moves each part once to add it up, and once more to hand the sum out.
template <class T>
class AllReduce : public Collective<T> {
 public:
  static constexpr bool kParts = false;
  using Collective<T>::Collective;
  void run(bool in_place) override {
    MPI_Allreduce(in_place ? MPI_IN_PLACE : this->in_.data(), this->result(in_place),
                  static_cast<int>(this->count_), type_of<T>(), MPI_SUM, MPI_COMM_WORLD);
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
    // In place each rank's part stands where it will stay.
    const void* const from = in_place ? MPI_IN_PLACE : this->own_part();
    MPI_Allgather(from, n, type_of<T>(), this->result(in_place), n, type_of<T>(), MPI_COMM_WORLD);
  }
  T expected(std::size_t index) const override { return this->gathered(index); }
};

template <class T>
class ReduceScatter : public Collective<T> {
 public:
  using Collective<T>::Collective;
  void run(bool in_place) override {
    MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : this->in_.data(), this->result(in_place),
                             this->per_rank(), type_of<T>(), MPI_SUM, MPI_COMM_WORLD);
  }
  std::size_t results() const override { return static_cast<std::size_t>(this->per_rank()); }
  T expected(std::size_t index) const override {
    return this->sum(index + results() * static_cast<std::size_t>(this->world_.rank));
  }
};

template <class T>
class AllToAll : public Collective<T> {
 public:
  using Collective<T>::Collective;
  void run(bool in_place) override {
    const int n = this->per_rank();
    MPI_Alltoall(in_place ? MPI_IN_PLACE : this->in_.data(), n, type_of<T>(),
                 this->result(in_place), n, type_of<T>(), MPI_COMM_WORLD);
  }
  T expected(std::size_t index) const override {
    const auto n = static_cast<std::size_t>(this->per_rank());
    return this->element(static_cast<int>(index / n),
                         index % n + n * static_cast<std::size_t>(this->world_.rank));
  }
};

// The root sends, the others receive into the same buffer; so out of place the root copies its
// input there first.
template <class T>
class Broadcast : public Collective<T> {
 public:
  static constexpr bool kParts = false;
  using Collective<T>::Collective;
  double bus_factor() const override { return 1; }
  void run(bool in_place) override {
    std::vector<T>& buffer = in_place ? this->in_ : this->out_;
    if (this->is_root() && !in_place) {
      buffer = this->in_;
    }
    MPI_Bcast(buffer.data(), static_cast<int>(this->count_), type_of<T>(), this->root_,
              MPI_COMM_WORLD);
  }
  T expected(std::size_t index) const override { return this->element(this->root_, index); }
};

template <class T>
class Gather : public Collective<T> {
 public:
  using Collective<T>::Collective;
  void run(bool in_place) override {
    const int n = this->per_rank();
    const void* const from = in_place && this->is_root() ? MPI_IN_PLACE : this->own_part();
    MPI_Gather(from, n, type_of<T>(), this->result(in_place), n, type_of<T>(), this->root_,
               MPI_COMM_WORLD);
  }
  std::size_t results() const override { return this->is_root() ? this->count_ : 0; }
  T expected(std::size_t index) const override { return this->gathered(index); }
};

template <class T>
class Scatter : public Collective<T> {
 public:
  using Collective<T>::Collective;
  void run(bool in_place) override {
    const int n = this->per_rank();
    void* const own = this->is_root() ? MPI_IN_PLACE : static_cast<void*>(this->in_.data());
    // The buffers of the others are not looked at; theirs is overwritten in place.
    MPI_Scatter(this->in_.data(), n, type_of<T>(),
                in_place ? own : static_cast<void*>(this->out_.data()), n, type_of<T>(),
                this->root_, MPI_COMM_WORLD);
  }
  std::size_t results() const override { return static_cast<std::size_t>(this->per_rank()); }
  // In place the root's part stays where it is.
  std::size_t first_result(bool in_place) const override {
    return in_place && this->is_root() ? part() : 0;
  }
  T expected(std::size_t index) const override {
    return this->element(this->root_, part() + index);
  }

 private:
  [[nodiscard]] std::size_t part() const {
    return results() * static_cast<std::size_t>(this->world_.rank);
  }
};

}  // namespace weft::mpi
