// Owns the cases about paths that no stock tool takes.
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <atomic>
#include <cerrno>
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

int open_without_malloc() {
  forbidden = true;
  const int other = open("/sys/class/net", O_RDONLY | O_DIRECTORY);
  const int ours = open("/sys/class/infiniband/efa_0/node_type", O_RDONLY);
  forbidden = false;
  demand(other >= 0 || errno == ENOENT, "cannot open a folder");
  demand(ours >= 0, "cannot open a file of the device");
  return 0;
}

int relative_paths() {
  const int folder = open("/dev/infiniband", O_RDONLY | O_DIRECTORY);
  demand(folder >= 0, "no folder of devices");
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

}  // namespace weft::conformance
