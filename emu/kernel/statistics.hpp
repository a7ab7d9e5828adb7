// Owns the counters of an emulated NIC: a file shared by all processes that use the NIC, in which
// the counts of ended processes stay.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "srd/base/result.hpp"

namespace weft::kernel {

// The commands of one process, which are counted alike for every kind of device.
struct CommandCounters {
  std::uint64_t submitted = 0;
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;
  // Those of them that were to make such an object.
  std::uint64_t failed_contexts = 0;
  std::uint64_t failed_pds = 0;
  std::uint64_t failed_mrs = 0;
  std::uint64_t failed_ahs = 0;
  std::uint64_t failed_cqs = 0;
  std::uint64_t failed_qps = 0;
};

// The objects that one process has on a NIC now.
struct LiveObjects {
  std::uint64_t process = 0;  // its number; of a sum it means nothing
  std::uint64_t contexts = 0;
  std::uint64_t pds = 0;
  std::uint64_t mrs = 0;
  std::uint64_t ahs = 0;
  std::uint64_t cqs = 0;
  std::uint64_t qps = 0;
  std::uint64_t srqs = 0;
};

// Room for what a kind of device counts itself, in a struct of 64-bit words that only it knows.
class OwnCounters {
 public:
  template <class T>
  [[nodiscard]] T& make() {
    check<T>();
    return *new (bytes_.data()) T{};
  }
  template <class T>
  [[nodiscard]] T as() const {
    check<T>();
    T counters;
    std::memcpy(static_cast<void*>(&counters), bytes_.data(), sizeof counters);
    return counters;
  }
  template <class T>
  void set(const T& counters) {
    check<T>();
    std::memcpy(bytes_.data(), &counters, sizeof counters);
  }
  void add(const OwnCounters& more);

 private:
  static constexpr std::size_t kWords = 96;
  template <class T>
  static constexpr void check() {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) == alignof(std::uint64_t));
    static_assert(sizeof(T) <= kWords * sizeof(std::uint64_t));
  }
  alignas(std::uint64_t) std::array<std::byte, kWords * sizeof(std::uint64_t)> bytes_{};
};

// The counters of one process. Written by the threads that drive its device; other processes may
// read them at any time.
struct Statistics {
  CommandCounters commands;
  LiveObjects live;
  // How often the NIC's link has gone down, as far as this process or one before it has seen.
  std::uint64_t link_downed = 0;
  OwnCounters own;
};

// What people are told of a device's traffic; nothing where its kind does not know it.
struct Traffic {
  std::uint64_t packets_out = 0;
  std::uint64_t packets_in = 0;
  std::uint64_t packets_sent_again = 0;
  std::uint64_t messages_in = 0;
  std::optional<std::uint64_t> packets_out_of_order;
  std::optional<std::uint64_t> messages_out_of_order;
  std::optional<std::uint64_t> paths;
};

// How a kind of device names its counters, and adds up what its processes have counted.
class CounterSet {
 public:
  // Where names and values are shown.
  enum class Place : std::uint8_t {
    device,         // hw_counters of the device
    port,           // ports/1/hw_counters, and netlink
    port_standard,  // ports/1/counters, with the names that all drivers share
    all,            // what its kind counts itself, for weft's own reports
  };
  using Visit = std::function<void(const char* name, std::uint64_t value)>;

  virtual void visit(Place place, const Statistics& statistics, const Visit& visit) const = 0;
  virtual void add(OwnCounters& sum, const OwnCounters& more) const { sum.add(more); }
  [[nodiscard]] virtual Traffic traffic(const Statistics& statistics) const = 0;

 protected:
  ~CounterSet() = default;
};

// Where the counters of the NIC of that name are, below the folder of write_device_tree().
[[nodiscard]] std::string statistics_path(const std::string& root, std::string_view nic);
// An empty file, which every user may write to, for devices of that kind.
[[nodiscard]] Result<void> make_statistics_file(const std::string& path, std::string_view kind);

// Takes a slot of the file for this process, and keeps it mapped until the process ends. Its counts
// stay in the sum after that. Null: there is no such file, no slot left, or no room on its
// disk; then the NIC works without being counted.
[[nodiscard]] Statistics* claim_statistics(const std::string& path);

// The file as its readers have it.
class StatisticsFile {
 public:
  [[nodiscard]] static Result<StatisticsFile> open(const std::string& path);

  [[nodiscard]] std::string_view kind() const;
  // The sum over all processes; live objects only of processes that still run.
  [[nodiscard]] Statistics sum(const CounterSet& counters) const;

 private:
  struct Unmap {
    void operator()(std::byte* data) const;
  };
  using Mapping = std::unique_ptr<std::byte, Unmap>;

  explicit StatisticsFile(Mapping data) : data_(std::move(data)) {}
  [[nodiscard]] static Mapping map(int fd);
  friend Statistics* claim_statistics(const std::string& path);

  Mapping data_;
};

}  // namespace weft::kernel
