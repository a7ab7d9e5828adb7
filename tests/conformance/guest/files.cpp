// Owns the cases about paths that no stock tool takes. The devices' files are in two folders that
// the kernel does not have (/sys/class/infiniband and /dev/infiniband); a program must be able to
// reach them in all the ways in which it reaches files that are there.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <string>

#include "tests/conformance/guest/cases.hpp"
#include "tests/conformance/storm/queue_pair.hpp"

namespace {
std::atomic<bool> forbidden{false};
}

// The program's allocator, which may itself open files.
extern "C" void* __libc_malloc(std::size_t size);
extern "C" void* malloc(std::size_t size) {
  if (forbidden) {
    constexpr char kText[] = "malloc() was called\n";
    (void)!write(2, kText, sizeof kText - 1);
    _exit(1);
  }
  return __libc_malloc(size);
}

namespace weft::conformance {

// A program's allocator may open files before it is ready, so wrappers must not allocate on the
// way.
int open_without_malloc() {
  forbidden = true;
  const int other = open("/sys/class/net", O_RDONLY | O_DIRECTORY);
  const int ours = open("/sys/class/infiniband/efa_0/node_type", O_RDONLY);
  forbidden = false;
  demand(other >= 0 || errno == ENOENT, "cannot open a folder");
  demand(ours >= 0, "cannot open a file of the device");
  return 0;
}

// Emulated files are reached through folders' descriptors and from the working directory, too.
int relative_paths() {
  const int folder = open("/dev/infiniband", O_RDONLY | O_DIRECTORY);
  demand(folder >= 0, "no folder of devices");
  DIR* const listing = opendir("/dev/infiniband");
  const dirent* entry = nullptr;
  while ((entry = readdir(listing)) != nullptr && std::string(entry->d_name) != "uverbs0") {
  }
  demand(entry != nullptr && entry->d_type == DT_CHR, "not a device to readdir()");
  closedir(listing);
  struct stat status {};
  demand(fstatat(folder, "uverbs0", &status, 0) == 0 && S_ISCHR(status.st_mode),
         "not a device to fstatat()");
  const int device = openat(folder, "uverbs0", O_RDWR | O_CLOEXEC);
  demand(device >= 0 && fstat(device, &status) == 0 && S_ISCHR(status.st_mode),
         "not a device to openat()");
  close(device);

  const int classes = open("/sys/class", O_RDONLY | O_DIRECTORY);
  demand(faccessat(classes, "infiniband/efa_0/fw_ver", R_OK, 0) == 0, "not below /sys/class");
  demand(chdir("/dev/infiniband") == 0 && stat("uverbs0", &status) == 0 && S_ISCHR(status.st_mode),
         "not a device to stat()");
  demand(access("../../sys/class/infiniband", R_OK) == 0, "the way back and forth");
  demand(chdir("/sys/class") == 0 && access("infiniband/efa_0/fw_ver", R_OK) == 0,
         "not where the program is");
  demand(chdir("..") == 0 && access("class/infiniband/efa_0", R_OK) == 0, "not one step up");

  static int seen = 0;
  demand(ftw(
             "/sys/class/infiniband",
             [](const char* path, const struct stat*, int) {
               ++seen;
               return std::string(path).rfind("/sys/class/infiniband", 0) == 0 ? 0 : 1;
             },
             4) == 0 &&
             seen > 1,
         "ftw() goes elsewhere");
  char names[256];
  demand(
      listxattr("/sys/class/infiniband/efa_0/fw_ver", names, sizeof names) >= 0 || errno == ENOTSUP,
      "no attributes");
  return 0;
}

// ".." is the parent of where a link leads, as the kernel has it, and not the word before it: a
// wrapper that shortened paths as text would be wrong wherever a link was passed.
int steps_back() {
  char resolved[PATH_MAX];
  const auto leads_to = [&](const char* path, const char* where) {
    const char* const real = realpath(path, resolved);
    if (real == nullptr || std::string(real) != where) {
      std::fprintf(stderr, "%s leads to %s\n", path, real == nullptr ? strerror(errno) : real);
      return false;
    }
    return true;
  };
  demand(leads_to("/sys/class/infiniband/..", "/sys/class"), "up from the first folder");
  demand(leads_to("/sys/class/infiniband/../net", "/sys/class/net"), "and down beside it");
  demand(leads_to("/sys/class/infiniband/efa_0/device/../../../class/net", "/sys/class/net"),
         "through two links");
  demand(
      leads_to("/sys/class/infiniband/efa_0/..", "/sys/devices/pciefa0:00/efa0:00:00.0/infiniband"),
      "a step back from a link");
  demand(
      leads_to("/sys/class/net/../infiniband/efa_0/device", "/sys/devices/pciefa0:00/efa0:00:00.0"),
      "in from beside");
  demand(leads_to("/sys/class/pci_bus/efa0:00/../../efa0:00:00.0",
                  "/sys/devices/pciefa0:00/efa0:00:00.0"),
         "from the bus to the device");
  demand(leads_to("/sys/class/infiniband/../../../proc/../sys/class/infiniband",
                  "/sys/class/infiniband"),
         "out and in");
  demand(leads_to("/sys/class/infiniband/../../../../../../dev/null", "/dev/null"),
         "above the top");
  char link[64];
  demand(readlink("/sys/class/infiniband/../infiniband/efa_0", link, sizeof link) > 0,
         "the last link is not followed");
  struct stat status {};
  demand(
      lstat("/sys/class/infiniband/../infiniband/efa_0", &status) == 0 && S_ISLNK(status.st_mode),
      "nor by lstat()");

  const int device = open("/sys/class/infiniband/efa_0/device", O_RDONLY | O_DIRECTORY);
  demand(device >= 0 && faccessat(device, "../../../class/net", F_OK, 0) == 0, "from a folder");
  demand(fstatat(device, "../../../class/infiniband/efa_0/fw_ver", &status, 0) == 0,
         "and in again");
  demand(fstatat(device, "driver/../efa/efa0:00:00.0", &status, AT_SYMLINK_NOFOLLOW) == 0 &&
             S_ISLNK(status.st_mode),
         "a step back inside");
  demand(chdir("/sys/class/infiniband/efa_0") == 0 && access("../../../../../class/net", F_OK) == 0,
         "from where the program is");
  demand(access("ports/../device/../../../class/infiniband", F_OK) == 0, "further on");
  demand(access("/sys/class/infiniband/no_such/../efa_0", F_OK) != 0, "through nothing");
  demand(access("/sys/class/infiniband/efa_0/fw_ver/../node_guid", F_OK) != 0, "through a file");
  return 0;
}

namespace {

// The kernel answers EFAULT; wrappers that look at the path first must not crash.
void demand_bad_paths(std::initializer_list<const char*> addresses) {
  struct stat status {};
  // volatile: the compiler must not know what it passes to functions that promise to get good
  // paths.
  for (const char* volatile path : addresses) {
    demand(open(path, O_RDONLY) < 0 && errno == EFAULT, "open()");
    demand(openat(AT_FDCWD, path, O_RDONLY) < 0 && errno == EFAULT, "openat()");
    demand(stat(path, &status) < 0 && errno == EFAULT, "stat()");
    demand(access(path, R_OK) < 0 && errno == EFAULT, "access()");
    demand(chdir(path) < 0 && errno == EFAULT, "chdir()");
    char target[8];
    demand(readlink(path, target, sizeof target) < 0 && errno == EFAULT, "readlink()");
    demand(fopen(path, "r") == nullptr && errno == EFAULT, "fopen()");
  }
}

}  // namespace

int bad_pointers() {
  constexpr std::size_t kPage = 4096;
  char* const pages = static_cast<char*>(
      mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  // A name that begins as one of ours and runs into a page that cannot be read.
  char* const endless = pages + kPage - 8;
  std::memcpy(endless, "/sys/cla", 8);
  // Its last byte is the page's: who reads a word too many reads what is not there.
  constexpr char kDot[] = "/dev/.";
  char* const at_the_end = pages + 3 * kPage - sizeof kDot;
  std::memcpy(at_the_end, kDot, sizeof kDot);
  for (char* const page : {pages + kPage, pages + 3 * kPage}) {
    demand(mprotect(page, kPage, PROT_NONE) == 0, "mprotect");
  }
  const auto demand_all = [&] {
    demand_bad_paths({reinterpret_cast<const char*>(1), reinterpret_cast<const char*>(0x10000),
                      reinterpret_cast<const char*>(~std::uintptr_t{0}),
                      reinterpret_cast<const char*>(std::uintptr_t{0x8000000000000000}),
                      pages + kPage, endless});
    errno = 0;
    demand(access(at_the_end, F_OK) == 0 && errno == 0, "a path that ends with what is readable");
  };
  demand_all();  // nothing of the emulation's has been opened
  QueuePair queue(16, 64);
  demand_all();
  const auto* volatile piece = reinterpret_cast<const iovec*>(pages + kPage);
  demand(writev(queue.context()->cmd_fd, const_cast<const iovec*>(piece), 1) < 0 && errno == EFAULT,
         "writev()");
  return 0;
}

// The program's own symbolic links lead into the emulated tree.
int own_links() {
  char folder[] = "/tmp/weft-links-XXXXXX";
  demand(mkdtemp(folder) != nullptr && chdir(folder) == 0, "a folder of our own");
  demand(symlink("/dev/infiniband/uverbs0", "device") == 0 &&
             symlink("/sys/class/infiniband", "classes") == 0 && symlink("classes", "again") == 0 &&
             symlink("device", "loop") == 0 && symlink("no-such-file", "nowhere") == 0,
         "symlink()");
  struct stat status {};
  demand(stat("device", &status) == 0 && S_ISCHR(status.st_mode), "not a device to stat()");
  demand(lstat("device", &status) == 0 && S_ISLNK(status.st_mode), "not a link to lstat()");
  demand(access("loop", R_OK | W_OK) == 0, "not there to access()");
  const int device = open("loop", O_RDWR | O_CLOEXEC);
  demand(device >= 0 && fstat(device, &status) == 0 && S_ISCHR(status.st_mode), "open()");
  demand(open("device", O_RDWR | O_NOFOLLOW) < 0 && errno == ELOOP, "O_NOFOLLOW");
  char resolved[PATH_MAX];
  demand(realpath("again", resolved) != nullptr && std::string(resolved) == "/sys/class/infiniband",
         "realpath()");
  FILE* const version = fopen("again/efa_0/fw_ver", "r");
  demand(version != nullptr && fclose(version) == 0, "fopen()");
  DIR* const listing = opendir("classes/efa_0/ports");
  demand(listing != nullptr && closedir(listing) == 0, "opendir()");
  demand(lstat("again/efa_0", &status) == 0 && S_ISLNK(status.st_mode), "lstat() below it");
  demand(readlink("again/efa_0", resolved, sizeof resolved) > 0, "readlink() below it");
  demand(open("nowhere", O_RDONLY) < 0 && errno == ENOENT, "a link to nowhere");
  demand(chdir("again") == 0 && access("efa_0/fw_ver", R_OK) == 0, "chdir()");
  for (const char* const name : {"device", "classes", "again", "loop", "nowhere"}) {
    demand(unlink((std::string(folder) + "/" + name).c_str()) == 0, "unlink()");
  }
  return rmdir(folder);
}

int sandboxed() {
  // As older profiles of containers: process_vm_readv() and process_vm_writev() are EPERM.
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(filter), filter};
  demand(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
             prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0,
         "seccomp");
  return bad_pointers();
}

// Some libraries call these functions by glibc's internal names.
int other_names() {
  const auto open_it =
      reinterpret_cast<int (*)(const char*, int, ...)>(dlsym(RTLD_DEFAULT, "__open"));
  const auto close_it = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "__close"));
  const auto dup_it = reinterpret_cast<int (*)(int, int)>(dlsym(RTLD_DEFAULT, "__dup2"));
  const auto write_it =
      reinterpret_cast<ssize_t (*)(int, const void*, std::size_t)>(dlsym(RTLD_DEFAULT, "__write"));
  demand(open_it != nullptr && close_it != nullptr && dup_it != nullptr && write_it != nullptr,
         "glibc has them");
  const int device = open_it("/dev/infiniband/uverbs0", O_RDWR);
  struct stat status {};
  demand(device >= 0 && fstat(device, &status) == 0 && S_ISCHR(status.st_mode), "__open()");
  demand(write_it(device, "12345678", 8) < 0 && errno == EINVAL, "__write()");
  demand(dup_it(device, 100) == 100 && fstat(100, &status) == 0 && S_ISCHR(status.st_mode),
         "__dup2()");
  demand(close_it(device) == 0 && close_it(100) == 0, "__close()");
  const int plain = open("/dev/null", O_RDWR);
  // What __close() did not tell the emulation would now be taken for the device.
  demand(plain == device && write(plain, "x", 1) == 1, "the number is free again");
  return 0;
}

}  // namespace weft::conformance
