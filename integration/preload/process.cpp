// Owns the table of open device files, and what becomes of it after a fork.
#include "integration/preload/process.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "emu/kernel/native.hpp"
#include "emu/kernel/statistics.hpp"
#include "emu/kernel/uverbs_file.hpp"
#include "integration/preload/fd_table.hpp"
#include "integration/preload/nic_runner.hpp"
#include "integration/preload/paths.hpp"
#include "integration/preload/verbs_hooks.hpp"

namespace weft::preload {
namespace {

namespace kernel = emu::kernel;
constexpr int kMostNics = 64;

struct OpenFile {
  std::unique_ptr<kernel::UverbsFile> verbs;
  int nic = 0;
};

// Never destroyed: other libraries' destructors may still use verbs when ours would have run.
struct Process {
  std::mutex mutex;
  pid_t pid = getpid();
  std::array<std::unique_ptr<NicRunner>, kMostNics> nics;
  std::map<int, std::shared_ptr<OpenFile>> files;  // null after a fork: the parent's
};

void in_child_after_fork();
void at_exit();

Process& process() {
  static Process* const instance = [] {
    pthread_atfork(nullptr, nullptr, in_child_after_fork);
    (void)std::atexit(at_exit);
    return new Process;
  }();
  return *instance;
}

// The child has a copy of everything and the right to nothing: the rings have one consumer, and the
// device files belong to the parent. It can open the device again and get a place of its own.
void in_child_after_fork() {
  Process& self = process();
  new (&self.mutex) std::mutex;
  self.pid = getpid();
  VerbsHooks::instance().forget_all();
  for (auto& nic : self.nics) {
    if (nic != nullptr) {
      nic->abandon();
      (void)nic.release();
    }
  }
  for (auto& [fd, file] : self.files) {
    new std::shared_ptr<OpenFile>(
        std::move(file));  // kept for ever, so that nothing is torn down here
  }
}

// A NIC of its own would go on answering after the program has ended; ours ends with it.
void at_exit() {
  Process& self = process();
  if (self.pid != getpid()) {
    return;
  }
  for (const auto& nic : self.nics) {
    if (nic != nullptr) {
      nic->linger();
    }
  }
}

// In a child of vfork the tables are the parent's, and so are the descriptors they speak of.
bool in_vfork_child() { return getpid() != process().pid; }

void complain(const std::string& text) {
  const std::string line = "weft: " + text + "\n";
  (void)!syscall(SYS_write, 2, line.data(), line.size());
}

Result<kernel::NicDescription> read_description(int nic) {
  const std::string path = std::string(tree_root()) + "/nic" + std::to_string(nic);
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) {
    return fail(ErrorCode::not_found, "cannot read " + path);
  }
  std::string text;
  std::array<char, 1024> piece;
  std::size_t length = 0;
  while ((length = std::fread(piece.data(), 1, piece.size(), file)) > 0) {
    text.append(piece.data(), length);
  }
  std::fclose(file);
  return kernel::nic_from_text(text);
}

// With the table's mutex held.
NicRunner* runner(int nic) {
  auto& slot = process().nics[static_cast<std::size_t>(nic)];
  if (slot != nullptr) {
    return slot.get();
  }
  const auto description = read_description(nic);
  if (!description) {
    complain(description.error().message);
    return nullptr;
  }
  auto started = NicRunner::start(*description, kernel::claim_statistics(kernel::statistics_path(
                                                    tree_root(), description->name)));
  if (!started) {
    complain("cannot bring " + description->name + " up: " + started.error().message);
    return nullptr;
  }
  slot = std::move(*started);
  return slot.get();
}

std::shared_ptr<OpenFile> find(int fd) {
  Process& self = process();
  const std::lock_guard guard(self.mutex);
  const auto found = self.files.find(fd);
  return found == self.files.end() ? nullptr : found->second;
}

}  // namespace

int open_uverbs(int nic, int flags) {
  Process& self = process();
  const std::lock_guard guard(self.mutex);
  NicRunner* const up = runner(nic);
  if (up == nullptr) {
    errno = ENODEV;
    return -1;
  }
  auto file = std::make_shared<OpenFile>();
  file->nic = nic;
  file->verbs = std::make_unique<kernel::UverbsFile>(up->device(), *up, &VerbsHooks::instance());
  const int native = file->verbs->open();
  if (native < 0) {
    return -1;
  }
  const int command = (flags & O_CLOEXEC) != 0 ? F_DUPFD_CLOEXEC : F_DUPFD;
  const int fd = static_cast<int>(syscall(SYS_fcntl, native, command, 0));
  if (fd >= FdTable::kMost) {
    kernel::native::close(fd);
    errno = EMFILE;
    return -1;
  }
  if (fd >= 0) {
    up->need_background();
    self.files[fd] = std::move(file);
    VerbsHooks::instance().opened(fd, *up);
    FdTable::set(fd, static_cast<std::uint8_t>(nic + 1));
  }
  return fd;
}

ssize_t write_uverbs(int fd, const void* buffer, std::size_t size) {
  const auto file = find(fd);
  ssize_t result = -EIO;
  if (file != nullptr && !in_vfork_child()) {
    result = file->verbs->write(fd, buffer, size);
  }
  if (result < 0) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}

int ioctl_uverbs(int fd, unsigned long request, void* argument) {
  const auto file = find(fd);
  int result = -EIO;
  if (file != nullptr && !in_vfork_child()) {
    result = file->verbs->ioctl(request, reinterpret_cast<std::uintptr_t>(argument));
  }
  if (result < 0) {
    errno = -result;
    return -1;
  }
  return result;
}

void duplicated_uverbs(int fd, int copy) {
  if (copy >= FdTable::kMost || in_vfork_child()) {
    return;
  }
  Process& self = process();
  const std::lock_guard guard(self.mutex);
  if (const auto found = self.files.find(fd); found != self.files.end()) {
    self.files[copy] = found->second;
    FdTable::set(copy, FdTable::kind(fd));
  }
}

void closing_uverbs(int fd) {
  if (in_vfork_child()) {
    return;
  }
  std::shared_ptr<OpenFile> last;
  Process& self = process();
  {
    const std::lock_guard guard(self.mutex);
    FdTable::set(fd, 0);
    const auto found = self.files.find(fd);
    if (found != self.files.end()) {
      last = std::move(found->second);
      self.files.erase(found);
    }
  }
  VerbsHooks::instance().closing(fd);
}

}  // namespace weft::preload
