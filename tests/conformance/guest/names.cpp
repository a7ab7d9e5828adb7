// Owns the cases about names: of devices, of the entries of folders, and of where the program is.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <string>

#include "tests/conformance/guest/cases.hpp"
#include "tests/conformance/storm/queue_pair.hpp"

namespace weft::conformance {
namespace {

constexpr char kFolder[] = "/dev/infiniband";
constexpr char kDevice[] = "/dev/infiniband/uverbs0";

template <class Entry>
bool is_our_device(const Entry& entry) {
  return std::string(entry.d_name) == "uverbs0" && entry.d_type == DT_CHR;
}

int seen = 0;
template <class Entry>
int see(const Entry* entry) {
  seen += is_our_device(*entry) ? 1 : 0;
  return 1;
}

// `scan` is given where the list goes.
template <class Entry, class Scan>
bool lists_our_device(Scan&& scan) {
  Entry** list = nullptr;
  const int found = scan(&list);
  int devices = 0;
  for (int i = 0; i < found; ++i) {
    devices += is_our_device(*list[i]) ? 1 : 0;
    std::free(list[i]);
  }
  std::free(list);
  // ".", ".." and the device.
  return found >= 3 && devices == 1;
}

}  // namespace

// As the kernel writes and opens them, and no other way.
int device_names() {
  struct stat status {};
  // Spellings of 0 that atoi() would accept, a device that is not there, a name that lacks its
  // number, and one that must have none.
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

// Every way to list a folder says that a device file is one.
int listings() {
  demand(lists_our_device<dirent>(
             [](auto* list) { return scandir(kFolder, list, nullptr, alphasort); }),
         "scandir()");
  demand(lists_our_device<dirent>(
             [](auto* list) { return scandir(kFolder, list, see<dirent>, nullptr); }),
         "with a filter");
  demand(lists_our_device<dirent64>(
             [](auto* list) { return scandir64(kFolder, list, see<dirent64>, nullptr); }),
         "scandir64()");
  demand(seen == 2, "the filter is shown another type");
  const int parent = open("/dev", O_RDONLY | O_DIRECTORY);
  demand(lists_our_device<dirent>([parent](auto* list) {
           return scandirat(parent, "infiniband", list, nullptr, nullptr);
         }),
         "scandirat()");
  const auto read = reinterpret_cast<int (*)(DIR*, dirent*, dirent**)>(
      dlsym(RTLD_DEFAULT, "readdir_r"));  // which is deprecated
  DIR* const folder = opendir(kFolder);
  dirent entry{};
  dirent* found = nullptr;
  bool there = false;
  while (read(folder, &entry, &found) == 0 && found != nullptr) {
    there = there || is_our_device(entry);
  }
  demand(there && closedir(folder) == 0, "readdir_r()");
  demand(chdir(kFolder) == 0, "chdir()");
  demand(lists_our_device<dirent>([](auto* list) { return scandir(".", list, nullptr, nullptr); }),
         "from inside");
  return 0;
}

// The program never learns where the folder really lies.
int whereabouts() {
  demand(chdir(kFolder) == 0, "chdir()");
  const std::string here = kFolder;
  char path[PATH_MAX];
  const auto getwd = reinterpret_cast<char* (*)(char*)>(dlsym(RTLD_DEFAULT, "getwd"));
  demand(getwd(path) == path && path == here, "getwd()");
  demand(getcwd(path, 32) == path && path == here, "getcwd()");
  demand(getcwd(path, sizeof kFolder) == path && path == here, "where it just fits");
  demand(getcwd(path, sizeof kFolder - 1) == nullptr && errno == ERANGE, "where it does not");
  demand(getcwd(path, 0) == nullptr && errno == EINVAL, "no room at all");
  char* const made = getcwd(nullptr, 32);
  demand(made != nullptr && made == here, "of its own");
  std::free(made);
  const auto leads_here = [&](const char* link, std::size_t room) {
    const ssize_t length = readlink(link, path, room);
    // As readlink() does it: cut without a word, and no zero at the end.
    return length == static_cast<ssize_t>(std::min(room, here.size())) &&
           here.compare(0, static_cast<std::size_t>(length), path,
                        static_cast<std::size_t>(length)) == 0;
  };
  const int folder = open(kFolder, O_RDONLY | O_DIRECTORY);
  const std::string opened = "/proc/self/fd/" + std::to_string(folder);
  for (const char* const link : {"/proc/self/cwd", opened.c_str()}) {
    for (const std::size_t room : {std::size_t{1}, std::size_t{2}, std::size_t{15}, std::size_t{16},
                                   std::size_t{64}, std::size_t{PATH_MAX - 1}}) {
      demand(leads_here(link, room), link);
    }
  }
  demand(
      readlinkat(folder, "/proc/self/cwd", path, sizeof path) == static_cast<ssize_t>(here.size()),
      "readlinkat()");
  demand(chdir("/etc") == 0 && readlink("/proc/self/cwd", path, 3) == 3 &&
             std::memcmp(path, "/et", 3) == 0,
         "elsewhere");
  demand(getcwd(path, 3) == nullptr && errno == ERANGE, "nor there");
  return 0;
}

// A device file is a stream: nothing can be written at a position, and no command is lost there.
int positions() {
  const int device = open(kDevice, O_RDWR | O_CLOEXEC);
  demand(device >= 0, "no device");
  char bytes[8] = {};
  const iovec piece{bytes, sizeof bytes};
  demand(pwrite(device, bytes, sizeof bytes, 0) < 0 && errno == ESPIPE, "pwrite()");
  demand(pwrite64(device, bytes, sizeof bytes, 8) < 0 && errno == ESPIPE, "pwrite64()");
  demand(pwrite(device, bytes, sizeof bytes, -1) < 0 && errno == EINVAL, "before the beginning");
  demand(pwritev(device, &piece, 1, 0) < 0 && errno == ESPIPE, "pwritev()");
  demand(pwritev64(device, &piece, 1, 0) < 0 && errno == ESPIPE, "pwritev64()");
  demand(pwritev2(device, &piece, 1, 0, 0) < 0 && errno == ESPIPE, "pwritev2()");
  demand(pwritev2(device, &piece, 1, -1, 0) < 0 && errno == EINVAL, "as writev(): no command");
  const int plain = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  demand(pwrite(plain, "ab", 2, 1) == 2 && pwritev2(plain, &piece, 1, -1, 0) == 8 &&
             lseek(plain, 0, SEEK_END) == 8,
         "a file of the program's own");
  return close(plain) + close(device);
}

// With a soft-RoCE device one more than the host has, which libraries look for, with an address for
// each GID; else none. Ours come last.
int interfaces() {
  const bool wanted = access("/dev/infiniband/rdma_cm", F_OK) == 0;
  for (int i = 0; i < 3; ++i) {
    ifaddrs* list = nullptr;
    demand(getifaddrs(&list) == 0, "getifaddrs");
    int found4 = 0;
    int found6 = 0;
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
      if (std::strncmp(one->ifa_name, "weft", 4) != 0) {
        demand(found4 + found6 == 0, "ours come last");
        continue;
      }
      demand((one->ifa_flags & IFF_UP) != 0, "an interface that is up");
      if (one->ifa_addr->sa_family == AF_INET) {
        const auto* const address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
        demand((ntohl(address->sin_addr.s_addr) >> 24) == 127, "the NIC's IPv4 address");
        ++found4;
      } else {
        const auto* const address = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
        const unsigned char first = address->sin6_addr.s6_addr[0];
        demand(address->sin6_family == AF_INET6 && (first == 0xFD || first == 0xFE),
               "a unique local or a link-local address");
        ++found6;
      }
    }
    demand(found4 == (wanted ? 1 : 0) && found6 == (wanted ? 2 : 0), "as many as there are GIDs");
    freeifaddrs(list);
  }
  return 0;
}

}  // namespace weft::conformance
