// Owns the case about names of devices.
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>

#include "tests/conformance/guest/cases.hpp"
#include "tests/conformance/storm/queue_pair.hpp"

namespace weft::conformance {
namespace {

constexpr char kFolder[] = "/dev/infiniband";
constexpr char kDevice[] = "/dev/infiniband/uverbs0";

}  // namespace

// As the kernel writes and opens them, and no other way.
int device_names() {
  struct stat status {};
  for (const char* const name : {"uverbs00", "uverbs+0", "uverbs-0", "uverbs 0", "uverbs0x",
                                 "uverbs7", "uverbs", "rdma_cm0"}) {
    const std::string path = std::string(kFolder) + "/" + name;
    demand(open(path.c_str(), O_RDWR) < 0 && errno == ENOENT, name);
    demand(stat(path.c_str(), &status) < 0 && errno == ENOENT, name);
  }
  demand(open(kDevice, O_RDWR | O_CREAT | O_EXCL, 0600) < 0 && errno == EEXIST, "O_EXCL");
  demand(open(kDevice, O_RDWR | O_DIRECTORY) < 0 && errno == ENOTDIR, "O_DIRECTORY");
  demand(open(kDevice, O_RDWR | O_TMPFILE, 0600) < 0 && errno == ENOTDIR, "O_TMPFILE");
  demand(open("/dev/infiniband/uverbs0/", O_RDWR) < 0 && errno == ENOTDIR, "a slash behind it");
  const int device = open(kDevice, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  demand(device >= 0 && fstat(device, &status) == 0 && S_ISCHR(status.st_mode), "O_CREAT");
  return close(device);
}

}  // namespace weft::conformance
