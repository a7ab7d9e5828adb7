// Owns the layout of the file of counters, and the text files made from it.
//
//   | header: how many slots were taken | slot 0 | slot 1 | ...
//
// A process takes one slot, for ever: counters of a NIC must not go back when a process ends. Each
// slot has one writer, and readers add up all of them, so no lock is needed. The file is sparse.
#include "emu/kernel/statistics.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

namespace weft::kernel {
namespace {

constexpr std::size_t kSlots = 4096;  // processes that ever used the NIC
constexpr std::size_t kSlotSize = (sizeof(Statistics) + 63) / 64 * 64;
constexpr std::size_t kHeaderSize = 64;
constexpr std::size_t kFileSize = kHeaderSize + kSlots * kSlotSize;  // sparse

// The whole file, mapped; not good() if it is missing or of another layout.
class Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct stat status {};
    if (fd >= 0 && ::fstat(fd, &status) == 0 &&
        static_cast<std::size_t>(status.st_size) == kFileSize) {
      void* const data = mmap(nullptr, kFileSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      data_ = data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
    }
    if (fd >= 0) {
      ::close(fd);
    }
  }
  ~Mapping() {
    if (data_ != nullptr) {
      munmap(data_, kFileSize);
    }
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] bool good() const { return data_ != nullptr; }
  [[nodiscard]] std::atomic_ref<std::uint32_t> used() const {
    return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(data_));
  }
  [[nodiscard]] std::byte* slot(std::size_t index) const {
    return data_ + kHeaderSize + index * kSlotSize;
  }
  void leak() { data_ = nullptr; }

 private:
  std::byte* data_ = nullptr;
};

// By its number, so a process of another pid namespace may be mistaken for one of this one.
bool is_alive(std::uint64_t process) {
  return process != 0 && (kill(static_cast<pid_t>(process), 0) == 0 || errno == EPERM);
}

// Adds one slot to a sum, word by word: Statistics consists of 64-bit counters only. Two
// exceptions: bit maps of paths are combined by OR, and live objects count only while their process
// runs.
void add(Statistics& sum, const std::byte* from) {
  constexpr std::size_t kWords = sizeof(Statistics) / sizeof(std::uint64_t);
  std::array<std::uint64_t, kWords> total;
  std::memcpy(total.data(), &sum, sizeof sum);
  const auto paths = sum.transport.paths_seen;
  Statistics one;
  std::memcpy(static_cast<void*>(&one), from, sizeof one);
  if (!is_alive(one.live.process)) {
    one.live = {};
  }
  std::array<std::uint64_t, kWords> more;
  std::memcpy(more.data(), &one, sizeof one);
  std::transform(total.begin(), total.end(), more.begin(), total.begin(), std::plus<>{});
  std::memcpy(static_cast<void*>(&sum), total.data(), sizeof sum);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    sum.transport.paths_seen[i] = paths[i] | one.transport.paths_seen[i];
  }
}

constexpr std::string_view kPortCounters[] = {"tx_bytes",
                                              "tx_pkts",
                                              "rx_bytes",
                                              "rx_pkts",
                                              "rx_drops",
                                              "send_bytes",
                                              "send_wrs",
                                              "recv_bytes",
                                              "recv_wrs",
                                              "rdma_read_wrs",
                                              "rdma_read_bytes",
                                              "rdma_read_wr_err",
                                              "rdma_read_resp_bytes",
                                              "rdma_write_wrs",
                                              "rdma_write_bytes",
                                              "rdma_write_wr_err",
                                              "rdma_write_recv_bytes",
                                              "retrans_bytes",
                                              "retrans_pkts",
                                              "retrans_timeout_events",
                                              "unresponsive_remote_events",
                                              "impaired_remote_conn_events"};

// Counters only grow, so the new text is at least as long as the old one, and one pwrite() replaces
// it: a reader never sees a mixture.
void write_number(const std::string& path, std::uint64_t value) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) {
    return;
  }
  const std::string text = std::to_string(value) + "\n";
  (void)!::pwrite(fd, text.data(), text.size(), 0);
  ::close(fd);
}

}  // namespace

static_assert(sizeof(Statistics) % sizeof(std::uint64_t) == 0);

std::string statistics_path(const std::string& root, std::string_view nic) {
  return root + "/statistics/" + std::string(nic);
}

Result<void> make_statistics_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const bool good = fd >= 0 && ftruncate(fd, static_cast<off_t>(kFileSize)) == 0;
  if (fd >= 0) {
    (void)fchmod(fd, 0666);  // programs on the host may be of any user, whatever the umask
    ::close(fd);
  }
  if (!good) {
    return fail(ErrorCode::io_error, "cannot make " + path + "; is there room?");
  }
  return {};
}

Statistics* claim_statistics(const std::string& path) {
  Mapping file(path);
  if (!file.good()) {
    return nullptr;
  }
  const std::uint32_t slot = file.used().fetch_add(1);
  if (slot >= kSlots) {
    file.used().fetch_sub(1);
    return nullptr;
  }
  auto* const statistics = new (file.slot(slot)) Statistics{};
  statistics->live.process = static_cast<std::uint64_t>(getpid());
  file.leak();  // stays mapped: its threads may count until the process ends
  return statistics;
}

Result<Statistics> read_statistics(const std::string& path) {
  const Mapping file(path);
  if (!file.good()) {
    return fail(ErrorCode::not_found, "there are no counters in " + path);
  }
  Statistics sum;
  const std::size_t used = std::min<std::size_t>(file.used().load(), kSlots);
  for (std::size_t i = 0; i < used; ++i) {
    add(sum, file.slot(i));
  }
  return sum;
}

void visit_port_counters(const Statistics& statistics, const VisitCounter& visit) {
  statistics.transport.for_each([&](const char* name, std::uint64_t value) {
    if (std::find(std::begin(kPortCounters), std::end(kPortCounters), name) !=
        std::end(kPortCounters)) {
      visit(name, value);
    }
  });
}

void visit_device_counters(const Statistics& statistics, const VisitCounter& visit) {
#define WEFT_DEVICE_COUNTER_VISIT(name) visit(#name, statistics.device.name);
  WEFT_DEVICE_COUNTERS(WEFT_DEVICE_COUNTER_VISIT)
#undef WEFT_DEVICE_COUNTER_VISIT
}

// The last folder of the path says whose counters they are: the port's, or the device's.
void refresh_counter_files(const std::string& root, const char* path) {
  constexpr std::string_view kFolder = "/hw_counters";
  constexpr std::string_view kDevices = "/infiniband/";
  const std::string_view whole = path;
  const std::size_t folder = whole.find(kFolder, root.size());
  if (folder == std::string_view::npos) {
    return;
  }
  const std::size_t device = whole.find(kDevices, root.size());
  if (device == std::string_view::npos || device > folder) {
    return;
  }
  const std::size_t name = device + kDevices.size();
  const std::string_view nic = whole.substr(name, whole.find('/', name) - name);
  const auto statistics = read_statistics(statistics_path(root, nic));
  if (!statistics) {
    return;
  }
  const std::string prefix = std::string(whole.substr(0, folder + kFolder.size())) + "/";
  const auto write = [&prefix](const char* counter, std::uint64_t value) {
    write_number(prefix + counter, value);
  };
  const bool of_port = whole.substr(0, folder).find("/ports/") != std::string_view::npos;
  of_port ? visit_port_counters(*statistics, write) : visit_device_counters(*statistics, write);
}

}  // namespace weft::kernel
