// Owns the table of open device files, and what becomes of it after a fork.
//
// Locks, outermost first: `starting[nic]` while a NIC is brought up; `mutex` around the tables;
// then that of VerbsHooks around its tables, or the device's own (Runner). A signal handler of the
// program may call any wrapper while its thread holds one of them; Guard and held_here() find that
// out, and the call does without the lock, or fails with EDEADLK.
#include "integration/preload/process.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <ranges>
#include <string>
#include <vector>

#include "emu/devices/connections.hpp"
#include "emu/devices/datagram_port.hpp"
#include "emu/kernel/native.hpp"
#include "emu/kernel/statistics.hpp"
#include "integration/preload/complaints.hpp"
#include "integration/preload/descriptors.hpp"
#include "integration/preload/event_handler.hpp"
#include "integration/preload/fault_guard.hpp"
#include "integration/preload/fault_signals.hpp"
#include "integration/preload/fd_table.hpp"
#include "integration/preload/guard.hpp"
#include "integration/preload/network.hpp"
#include "integration/preload/open_file.hpp"
#include "integration/preload/own_memory.hpp"
#include "integration/preload/paths.hpp"
#include "integration/preload/rdma_netlink.hpp"
#include "integration/preload/verbs_hooks.hpp"
#include "integration/preload/waiting_call.hpp"
#include "srd/base/lent_memory.hpp"
#include "srd/base/rng.hpp"
#include "srd/io/posix.hpp"

namespace weft::preload {
namespace {

using devices::NicRunner;
constexpr std::size_t kMaxNics = FdTable::kMaxNics;

// Receives what the device files report to the library hooks.
class Listener final : public kernel::LibraryHooks {
 public:
  void created_cq(const Touched& cq) override { VerbsHooks::instance().created_cq(cq); }
  void touched_qp(const Touched& qp) override { VerbsHooks::instance().touched_qp(qp); }
  void destroyed_qp(const Touched& qp) override { VerbsHooks::instance().destroyed_qp(qp); }
  void made_channel(const Touched& made) override;
};

// Never destroyed: destructors of other libraries may still use verbs at the end of the process.
struct Process {
  Listener listener;
  srd::TryLock mutex;
  pid_t pid = getpid();
  std::array<StartedNic, kMaxNics> nics;
  std::array<srd::TryLock, kMaxNics> starting;  // held, without the mutex, meanwhile
  std::unique_ptr<devices::Connections> connections;
  srd::TryLock connecting;  // held, without the mutex, while they are made
  std::array<std::unique_ptr<devices::DatagramPort>, kMaxNics> ports;  // made under `connecting`
  struct Known {
    std::shared_ptr<OpenFile> file;  // null after a fork: the parent's
    Inode inode;
  };
  std::map<int, Known> files;
  std::map<int, std::weak_ptr<OpenFile>> channels;  // by the application's descriptor
};

void before_fork();
void in_parent_after_fork();
void in_child_after_fork();
void at_exit();

constinit Process* instance = nullptr;
constinit pthread_once_t built = PTHREAD_ONCE_INIT;

// Made at the first use; installs everything that this library changes in the process.
Process& process() {
  pthread_once(&built, [] {
    fd_keeper = {keep_own, forget_own};
    install_fault_signals();
    lent_memory.touch = guarded_touch;
    instance = new Process;
    pthread_atfork(before_fork, in_parent_after_fork, in_child_after_fork);
    (void)std::atexit(at_exit);
  });
  return *instance;
}

// The locks that are held during a fork, so that the child gets consistent tables. If a signal
// handler interrupted a change of the tables and forks, the child gets them as they are.
struct Forking {
  bool process = false;
  bool hooks = false;
};
constinit Forking forking;

// Takes the lock. False: this thread has it already, and must not give it back.
bool enter(srd::TryLock& lock) {
  if (lock.held_here()) {
    return false;
  }
  lock.lock();
  return true;
}

void before_fork() {
  forking.process = enter(process().mutex);
  forking.hooks = enter(VerbsHooks::instance().lock());
}

void in_parent_after_fork() {
  if (forking.hooks) {
    VerbsHooks::instance().lock().unlock();
  }
  if (forking.process) {
    process().mutex.unlock();
  }
}

// The child has a copy of everything but may use nothing of it: each ring has one consumer, and the
// device files belong to the parent. It can open the device again, and gets a place of its own. Our
// descriptors are closed at once, because weftd notices the end of a process when its last one
// closes.
void in_child_after_fork() {
  Process& self = process();
  self.mutex.unlock();
  for (srd::TryLock& lock : self.starting) {
    lock.unlock();
  }
  self.connecting.unlock();
  self.pid = getpid();
  VerbsHooks::instance().forget_all();
  VerbsHooks::instance().lock().unlock();
  (void)self.connections.release();
  for (auto& port : self.ports) {
    (void)port.release();
  }
  for (auto& nic : self.nics) {
    if (nic.runner != nullptr) {
      nic.runner->abandon();
      (void)nic.runner.release();
    }
  }
  for (auto& [fd, known] : self.files) {
    new std::shared_ptr<OpenFile>(
        std::move(known.file));  // kept for ever, so that nothing is torn down here
  }
  // Kept files can still be found through their channels. To close one would wait for the lock of
  // a NIC, whose holder may be a thread that the child does not have.
  self.channels.clear();
  forget_nowhere();
  for (int fd = 0; fd < FdTable::end(); ++fd) {
    if (FdTable::is_private(fd)) {
      kernel::native::close(fd);
    } else if (FdTable::kind(fd) == FdTable::kChannel) {
      forget_own(fd);
    }
  }
}

// A real NIC goes on answering peers after its program has ended; this one lingers for a moment.
// exit() may be called by a signal handler in a thread that was making progress, or while such a
// handler waits for the end in another thread: nothing here waits for a lock for ever.
void at_exit() {
  Process& self = process();
  if (self.pid != getpid()) {
    return;
  }
  const srd::Uncancellable here;  // exit() is no point at which a thread ends
  if (self.connections != nullptr && !self.connections->held_here()) {
    self.connections->leave();
  }
  const TimePoint end = srd::monotonic_now() + srd::kLongestEnd;
  auto up = self.nics | std::views::filter([](auto& nic) { return nic.runner != nullptr; });
  auto left = std::ranges::distance(up);  // a peer that does not answer costs one NIC its share
  for (const StartedNic& nic : up) {
    nic.runner->finish_before_exit(std::max<Duration>(end - srd::monotonic_now(), {}) / left--);
  }
}

// Null, with errno set: it does not come up.
StartedNic* bring_up(std::size_t nic) {
  Process& self = process();
  if (!take_for_long(self.starting[nic])) {
    return nullptr;
  }
  const Guard first(self.starting[nic], std::adopt_lock);
  StartedNic& slot = self.nics[nic];
  if (slot.runner != nullptr) {
    return &slot;
  }
  const auto description = read_description(tree_root(), nic);
  if (!description) {
    complain(description.error().message);
    errno = ENODEV;
    return nullptr;
  }
  auto started = start_nic(tree_root(), *description);
  if (!started) {
    complain("cannot bring " + description->name + " up: " + started.error().message);
    if (has_no_descriptor_left()) {
      complain_of_few_descriptors();
    }
    errno = ENODEV;
    return nullptr;
  }
  const Guard guard(self.mutex);
  slot = std::move(*started);
  return &slot;
}

std::shared_ptr<kernel::CmFile> connections_file(int fd);

// Null, with errno set: no NIC comes up.
devices::Connections* connections() {
  Process& self = process();
  if (!take_for_long(self.connecting)) {
    return nullptr;
  }
  const Guard first(self.connecting, std::adopt_lock);
  if (self.connections != nullptr) {
    return self.connections.get();
  }
  std::vector<devices::Connections::Nic> nics;
  for (const kernel::NicDescription& description : read_descriptions(tree_root())) {
    StartedNic* const nic = bring_up(description.index);
    if (nic != nullptr && nic->runner->device().management() != nullptr) {
      nics.push_back({nic->runner.get(), nic->index, nic->claim, nic->may_exist});
    }
  }
  if (nics.empty()) {
    errno = ENODEV;
    return nullptr;
  }
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const auto seed =
      mix64(static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
            static_cast<std::uint64_t>(now.tv_nsec) + static_cast<unsigned>(self.pid));
  auto made = std::make_unique<devices::Connections>(std::move(nics), seed, connections_file);
  const Guard guard(self.mutex);
  self.connections = std::move(made);
  return self.connections.get();
}

// The caller holds the mutex.
void add(int fd, std::shared_ptr<OpenFile> file, std::uint8_t kind) {
  keep_nowhere();
  process().files[fd] = {std::move(file), inode_of(fd)};
  FdTable::set(fd, kind);
}

}  // namespace

bool in_vfork_child() { return getpid() != process().pid; }

bool is_own_copy() { return is_memory_of(process().pid); }

std::shared_ptr<OpenFile> file_of(int fd) {
  Process& self = process();
  const Guard guard(self.mutex);
  if (!guard) {
    return nullptr;
  }
  const auto found = self.files.find(fd);
  return found == self.files.end() ? nullptr : found->second.file;
}

std::shared_ptr<OpenFile> file_with(const kernel::StreamEnds& ends) {
  Process& self = process();
  const Guard guard(self.mutex);
  for (const auto& [fd, known] : self.files) {
    if (guard && known.file != nullptr && known.file->ends() == &ends) {
      return known.file;
    }
  }
  return nullptr;
}

int error_without_file(int fd) {
  Process& self = process();
  const Guard guard(self.mutex);
  const auto found = guard ? self.files.find(fd) : self.files.end();
  const bool is_closed = found == self.files.end() || found->second.file != nullptr;
  return guard && is_closed ? EBADF : EIO;
}

bool is_entered(const OpenFile& file) {
  return file.connections == nullptr ? file.runner->held_here()
                                     : process().connections->held_here();
}

namespace {

std::shared_ptr<kernel::CmFile> connections_file(int fd) {
  const auto file = file_of(fd);
  return file == nullptr ? nullptr : std::shared_ptr<kernel::CmFile>(file, file->connections.get());
}

void Listener::made_channel(const Touched& made) {
  Process& self = process();
  const Guard guard(self.mutex);
  const auto found = self.files.find(made.fd);
  if (guard && made.channel < FdTable::kMax && found != self.files.end()) {
    self.channels[made.channel] = found->second.file;
    FdTable::set(made.channel, FdTable::kChannel);
  }
}

// The file of connections whose only number this is, or null.
std::shared_ptr<kernel::CmFile> connections_of_last(int fd) {
  auto file = connections_file(fd);
  Process& self = process();
  const Guard guard(self.mutex);
  const auto is_same = [&](const auto& entry) {
    return entry.second.file != nullptr && entry.second.file->connections.get() == file.get();
  };
  const bool is_last = guard && file != nullptr && std::ranges::count_if(self.files, is_same) == 1;
  return is_last ? std::move(file) : nullptr;
}

// To be called before `fd` stands for another file, or for none.
void await_handler_of_last(int fd) {
  if (const auto file = connections_of_last(fd); file != nullptr) {
    await_event_handler(*file);
  }
}

// What a number stood for, or nothing.
struct Closed {
  std::shared_ptr<OpenFile> file;
  std::shared_ptr<OpenFile> of_channel;
};

// `fd` is of the kind `next` from now on. The caller holds the mutex, or a handler cannot.
Closed take(int fd, std::uint8_t next, bool is_locked) {
  Closed closed;
  Process& self = process();
  if (is_locked) {
    if (const auto found = self.files.find(fd); found != self.files.end()) {
      closed.file = std::move(found->second.file);
      self.files.erase(found);
    }
    if (const auto found = self.channels.find(fd); found != self.channels.end()) {
      closed.of_channel = found->second.lock();
      self.channels.erase(found);
    }
  }
  FdTable::set(fd, next);
  VerbsHooks::instance().closing(fd);
  return closed;
}

// Without the mutex: to take a file down takes time.
void let_go(int fd, Closed closed) {
  const srd::Uncancellable here;
  if (closed.of_channel != nullptr && !is_entered(*closed.of_channel)) {
    closed.of_channel->verbs->closed_channel(fd);
  }
  if (closed.file != nullptr && is_entered(*closed.file)) {
    new std::shared_ptr<OpenFile>(std::move(closed.file));  // it cannot be taken down from here
  }
}

int refuse(int error) {
  errno = error;
  return -1;
}

// For a file that makes its descriptor itself.
int give_descriptor(std::shared_ptr<OpenFile> file, std::uint8_t device, int flags) {
  const Guard guard(process().mutex);
  const int fd = file->datagrams != nullptr ? file->datagrams->open() : file->connections->open();
  if (fd < 0 && errno == EMFILE) {
    complain_of_few_descriptors();
  }
  if (fd >= FdTable::kMax) {
    syscall(SYS_close, fd);
    return refuse(EMFILE);
  }
  if (fd >= 0) {
    keep_flags(fd, flags);
    file->access_mode = flags & O_ACCMODE;
    add(fd, std::move(file), static_cast<std::uint8_t>(device + 1));
  }
  return fd;
}

int open_connections(int flags) {
  devices::Connections* const all = connections();
  if (all == nullptr) {
    return -1;
  }
  if (process().mutex.held_here()) {
    return refuse(EDEADLK);
  }
  auto file = std::make_shared<OpenFile>();
  file->connections = all->make_file();
  return give_descriptor(std::move(file), FdTable::kConnections, flags);
}

int open_datagrams(int device, int flags) {
  Process& self = process();
  const auto number = static_cast<std::size_t>(device - FdTable::kDatagrams);
  const StartedNic* const nic = bring_up(number);
  if (nic == nullptr || !take_for_long(self.connecting)) {
    return -1;
  }
  const Guard first(self.connecting, std::adopt_lock);
  if (self.mutex.held_here() || nic->runner->held_here()) {
    return refuse(EDEADLK);
  }
  if (nic->runner->device().management() == nullptr) {
    return refuse(ENXIO);
  }
  auto& port = self.ports[number];
  if (port == nullptr) {
    port = std::make_unique<devices::DatagramPort>(*nic->runner, nic->claim, nic->may_exist);
  }
  auto file = std::make_shared<OpenFile>();
  file->runner = nic->runner.get();
  file->datagrams = port->make_file();
  return give_descriptor(std::move(file), static_cast<std::uint8_t>(device), flags);
}

}  // namespace

int open_device(int device, int flags) {
  const srd::Uncancellable here;
  if (!is_own_memory()) {  // what is made here would be the parent's
    return refuse(EIO);
  }
  if (device == FdTable::kConnections) {
    return open_connections(flags);
  }
  if (device >= FdTable::kDatagrams) {
    return open_datagrams(device, flags);
  }
  const StartedNic* const nic = bring_up(static_cast<std::size_t>(device));
  if (nic == nullptr) {
    return -1;
  }
  NicRunner* const up = nic->runner.get();
  if (process().mutex.held_here()) {
    return refuse(EDEADLK);
  }
  auto file = std::make_shared<OpenFile>();
  file->runner = up;
  file->verbs = std::make_unique<kernel::UverbsFile>(up->device(), *up, &process().listener);
  // Under the mutex, so that the child of a fork finds each of our descriptors in the table.
  const Guard guard(process().mutex);
  const int native = file->verbs->open();
  if (native < 0) {
    if (errno == EMFILE) {
      complain_of_few_descriptors();
    }
    return -1;
  }
  const int fd = static_cast<int>(syscall(SYS_fcntl, native, F_DUPFD_CLOEXEC, 0));
  if (fd < 0 && errno == EMFILE) {
    complain_of_few_descriptors();
  }
  if (fd >= FdTable::kMax) {
    syscall(SYS_close, fd);
    return refuse(EMFILE);
  }
  if (fd >= 0) {
    keep_flags(fd, flags);
    file->access_mode = flags & O_ACCMODE;
    add(fd, std::move(file), static_cast<std::uint8_t>(device + 1));
    VerbsHooks::instance().opened(fd, *up);
  }
  return fd;
}

bool is_still_device(int fd) {
  if (in_vfork_child()) {
    return true;
  }
  Process& self = process();
  Closed gone;
  {
    const Guard guard(self.mutex);
    if (!guard) {
      return true;
    }
    const auto found = self.files.find(fd);
    if (found == self.files.end() || found->second.inode == inode_of(fd)) {
      return found != self.files.end();
    }
    gone = take(fd, 0, true);
  }
  let_go(fd, std::move(gone));
  return false;
}

// All in one step for other threads, as in the kernel. A number is in the table before it is the
// file's, and as long as it is, so that nobody writes into what the file is made from.
int duplicate(int fd, int target, StockCall stock) {
  if (in_vfork_child()) {
    return stock();
  }
  const srd::Uncancellable here;
  await_handler_of_last(target);
  Process& self = process();
  Closed replaced;
  Closed channel;
  int copy = -1;
  {
    const Guard guard(self.mutex);
    const auto found = guard ? self.files.find(fd) : self.files.end();
    const bool is_file = found != self.files.end() && found->second.inode == inode_of(fd);
    const std::uint8_t kind = is_file ? FdTable::kind(fd) : std::uint8_t{0};
    const bool is_new = FdTable::kind(target) == 0;
    if (is_file && is_new && target >= 0 && target < FdTable::kMax) {
      FdTable::set(target, kind);
    }
    copy = stock();
    const auto old = guard && copy == target ? self.files.find(target) : self.files.end();
    const bool is_same =
        is_file && old != self.files.end() && old->second.file == found->second.file;
    if (copy >= 0 && copy == target && !is_new && !is_same) {
      replaced = take(target, kind, static_cast<bool>(guard));
    } else if (copy < 0 && is_file && is_new && target >= 0 && target < FdTable::kMax) {
      FdTable::set(target, 0);
    }
    if (copy >= 0 && is_file && copy < FdTable::kMax) {
      add(copy, found->second.file, kind);
    }
    if (copy >= 0 && FdTable::kind(fd) == FdTable::kChannel) {
      channel = take(fd, 0, static_cast<bool>(guard));  // with two numbers its end is not noticed
    }
  }
  let_go(target, std::move(replaced));
  return copy;
}

// A number that the table has is closed under the mutex: before that it is the file, after that it
// is closed, or what another thread opens.
int close_file(int fd, StockCall stock) {
  if (in_vfork_child()) {
    return stock();
  }
  const srd::Uncancellable here;
  await_handler_of_last(fd);
  Closed closed;
  int result = -1;
  int error = 0;
  {
    const Guard guard(process().mutex);
    result = stock();
    error = errno;
    closed = take(fd, 0, static_cast<bool>(guard));
  }
  let_go(fd, std::move(closed));
  errno = error;
  return result;
}

void closing(int fd) {
  if (FdTable::kind(fd) == FdTable::kNetlink) {  // it has no state besides the table
    closing_rdma_socket(fd);
    return;
  }
  if (in_vfork_child()) {
    return;
  }
  const srd::Uncancellable here;
  await_handler_of_last(fd);
  Process& self = process();
  Closed closed;
  {
    const Guard guard(self.mutex);
    if (const auto found = self.files.find(fd);
        guard && found != self.files.end() && found->second.inode == inode_of(fd)) {
      lead_nowhere(fd);
    }
    closed = take(fd, 0, static_cast<bool>(guard));
  }
  let_go(fd, std::move(closed));
}

}  // namespace weft::preload
