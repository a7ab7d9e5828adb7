// Owns the layout of the file of counters.
//
//   | header: how many slots were taken, the kind of device | slot 0 | slot 1 | ...
//
// A process takes one slot and keeps it for ever, because the counters of a NIC must not go back
// when a process ends. Each slot has one writer, and readers add up all of them, so no lock is
// needed: a reader may see one counter of a slot newer than the next one.
//
// The file is sparse, and who touches a hole of a mapped file on a full disk is killed (SIGBUS). So
// room for a slot, and for all before it, is had before the slot is taken: slots in use have no
// holes, and a process that finds no room is not counted.
#include "emu/kernel/statistics.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

namespace weft::kernel {
namespace {

struct Header {
  std::uint32_t used = 0;
  std::array<char, 28> kind{};  // ends with a zero
};

constexpr std::size_t kSlots = 4096;  // processes that ever used the NIC
constexpr std::size_t kSlotSize = (sizeof(Statistics) + 63) / 64 * 64;
constexpr std::size_t kHeaderSize = 64;
constexpr std::size_t kFileSize = kHeaderSize + kSlots * kSlotSize;  // sparse
static_assert(sizeof(Header) <= kHeaderSize);

std::atomic_ref<std::uint32_t> used_slots(std::byte* data) {
  return std::atomic_ref(reinterpret_cast<Header*>(data)->used);
}

std::byte* slot_at(std::byte* data, std::size_t index) {
  return data + kHeaderSize + index * kSlotSize;
}

Statistics read_slot(std::byte* data, std::size_t index) {
  Statistics one;
  std::memcpy(static_cast<void*>(&one), slot_at(data, index), sizeof one);
  return one;
}

std::size_t slots_to_read(std::byte* data) {
  return std::min<std::size_t>(used_slots(data).load(), kSlots);
}

// A file system that cannot say so in advance is trusted.
bool has_room_for(int fd, std::uint32_t slot) {
  const std::size_t end = kHeaderSize + (slot + 1) * kSlotSize;
  return ::fallocate(fd, 0, 0, static_cast<off_t>(end)) == 0 || errno == EOPNOTSUPP ||
         errno == ENOSYS;
}

// By its number, so a process of another pid namespace may be mistaken for one of this one. Objects
// that exist now (live) are counted of living processes only.
bool is_alive(std::uint64_t process) {
  return process != 0 && (kill(static_cast<pid_t>(process), 0) == 0 || errno == EPERM);
}

// T consists of 64-bit counters only.
template <class T>
void add_words(T& sum, const T& more) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::uint64_t) == 0);
  using Words = std::array<std::uint64_t, sizeof(T) / sizeof(std::uint64_t)>;
  Words total;
  Words one;
  std::memcpy(total.data(), &sum, sizeof sum);
  std::memcpy(one.data(), &more, sizeof more);
  std::transform(total.begin(), total.end(), one.begin(), total.begin(), std::plus<>{});
  std::memcpy(static_cast<void*>(&sum), total.data(), sizeof sum);
}

}  // namespace

void OwnCounters::add(const OwnCounters& more) { add_words(bytes_, more.bytes_); }

std::string statistics_path(const std::string& root, std::string_view nic) {
  return root + "/statistics/" + std::string(nic);
}

Result<void> make_statistics_file(const std::string& path, std::string_view kind) {
  Header header;
  kind.copy(header.kind.data(), header.kind.size() - 1);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const bool good = fd >= 0 && ftruncate(fd, static_cast<off_t>(kFileSize)) == 0 &&
                    ::pwrite(fd, &header, sizeof header, 0) == ssize_t{sizeof header};
  if (fd >= 0) {
    (void)fchmod(fd, 0666);  // programs on the host may be of any user, whatever the umask
    ::close(fd);
  }
  if (!good) {
    return fail(ErrorCode::io_error, "cannot make " + path + "; is there room?");
  }
  return {};
}

void StatisticsFile::Unmap::operator()(std::byte* data) const { munmap(data, kFileSize); }

StatisticsFile::Mapping StatisticsFile::map(int fd) {
  Mapping mapping;
  struct stat status {};
  if (fd >= 0 && ::fstat(fd, &status) == 0 &&
      static_cast<std::size_t>(status.st_size) == kFileSize) {
    void* const data = mmap(nullptr, kFileSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    mapping.reset(data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data));
  }
  return mapping;
}

// The mapping is never released: the threads of this process may count until it ends.
Statistics* claim_statistics(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  StatisticsFile::Mapping mapping = StatisticsFile::map(fd);
  std::uint32_t slot = kSlots;
  if (mapping != nullptr) {
    const auto used = used_slots(mapping.get());
    slot = used.load();
    while (slot < kSlots) {
      if (!has_room_for(fd, slot)) {
        slot = kSlots;
      } else if (used.compare_exchange_weak(slot, slot + 1)) {
        break;
      }
    }
  }
  if (fd >= 0) {
    ::close(fd);
  }
  if (slot >= kSlots) {
    return nullptr;
  }
  std::byte* const data = mapping.release();  // its threads may count until the process ends
  auto* const statistics = new (slot_at(data, slot)) Statistics{};
  statistics->live.process = static_cast<std::uint64_t>(getpid());
  for (std::size_t i = 0; i < slot; ++i) {
    statistics->link_downed = std::max(statistics->link_downed, read_slot(data, i).link_downed);
  }
  return statistics;
}

Result<StatisticsFile> StatisticsFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  Mapping mapping = map(fd);
  if (fd >= 0) {
    ::close(fd);
  }
  if (mapping == nullptr) {
    return fail(ErrorCode::not_found, "there are no counters in " + path);
  }
  return StatisticsFile(std::move(mapping));
}

std::string_view StatisticsFile::kind() const {
  const auto& name = reinterpret_cast<const Header*>(data_.get())->kind;
  return {name.data(), strnlen(name.data(), name.size())};
}

// Counters are added up. How often the link went down is not: every process sees the same link, and
// one that started late saw less.
Statistics StatisticsFile::sum(const CounterSet& counters) const {
  Statistics sum;
  const std::size_t used = slots_to_read(data_.get());
  for (std::size_t i = 0; i < used; ++i) {
    const Statistics one = read_slot(data_.get(), i);
    add_words(sum.commands, one.commands);
    if (is_alive(one.live.process)) {
      add_words(sum.live, one.live);
    }
    sum.link_downed = std::max(sum.link_downed, one.link_downed);
    counters.add(sum.own, one.own);
  }
  return sum;
}

}  // namespace weft::kernel
