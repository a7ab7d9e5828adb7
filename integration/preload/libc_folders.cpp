// Owns the wrapped calls that list folders. An emulated device file is a regular file in the tree;
// a listing shows it as a character device, for programs that look for devices by the type of an
// entry.
//
// Whether a listed folder is /dev/infiniband is decided by device and inode, not by its name, which
// may be reached through links or relative paths. That costs system calls, so it is asked only for
// entries whose name could be a device's.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "integration/preload/next.hpp"
#include "integration/preload/paths.hpp"

namespace weft::preload {
namespace {

// Whether that is the folder /dev/infiniband, by whatever name. As fstatat().
bool is_device_folder(int folder, const char* path, int flags) {
  const int error = errno;
  const Redirected ours("/dev/infiniband");
  struct stat here {};
  struct stat there {};
  const bool known = syscall(SYS_newfstatat, folder, path, &here, flags) == 0 &&
                     syscall(SYS_newfstatat, AT_FDCWD, ours.path(), &there, 0) == 0;
  errno = error;
  return known && here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

// Whether the type is wrong if the entry is one of the folder /dev/infiniband.
template <class Entry>
bool is_named_as_device(const Entry& entry) {
  const auto begins = [&entry](const char* with) {
    return std::strncmp(entry.d_name, with, std::strlen(with)) == 0;
  };
  return entry.d_type == DT_REG &&
         (begins("uverbs") || begins("umad") || std::strcmp(entry.d_name, "rdma_cm") == 0);
}

template <class Entry>
Entry* show_type(DIR* folder, Entry* entry) {
  if (entry != nullptr && is_named_as_device(*entry) &&
      is_device_folder(dirfd(folder), "", AT_EMPTY_PATH)) {
    entry->d_type = DT_CHR;
  }
  return entry;
}

// The latest scandir() of this thread: it takes a plain function, which cannot carry anything.
// Scans may nest, hence the outer one.
template <class Entry>
class Scan {
 public:
  using Filter = int(const Entry*);

  Scan(int folder, const char* path, Filter* filter)
      : folder_(folder), path_(path), filter_(filter), outer_(latest) {
    latest = this;
  }
  ~Scan() { latest = outer_; }
  Scan(const Scan&) = delete;
  Scan& operator=(const Scan&) = delete;

  // Libc shows the program's filter the entry that it copies into the list afterwards.
  static int show(const Entry* entry) {
    const Scan& self = *latest;
    if (is_named_as_device(*entry) && is_device_folder(self.folder_, self.path_, 0)) {
      const_cast<Entry*>(entry)->d_type = DT_CHR;
    }
    return self.filter_ == nullptr ? 1 : self.filter_(entry);
  }

 private:
  static inline constinit thread_local const Scan* latest = nullptr;

  int folder_;
  const char* path_;
  Filter* filter_;
  const Scan* outer_;
};

template <class Entry>
using Compare = int(const Entry**, const Entry**);

// `stock` is given the path and the filter.
template <class Entry, class Stock>
int scan(int folder, const char* path, int (*filter)(const Entry*), Stock&& stock) {
  return redirected(folder, path, LastLink::followed, [&](const Redirected& to) {
    const Scan<Entry> now(folder, to.path(), filter);
    return stock(to.path(), Scan<Entry>::show);
  });
}

}  // namespace
}  // namespace weft::preload

using weft::preload::Compare;
using weft::preload::scan;
using weft::preload::show_type;

WEFT_EXPORT int scandir(const char* path, dirent*** list, int (*filter)(const dirent*),
                        Compare<dirent>* compare) {
  WEFT_NEXT(int(const char*, dirent***, int (*)(const dirent*), Compare<dirent>*), stock,
            "scandir");
  return scan(AT_FDCWD, path, filter, [&](const char* to, int (*show)(const dirent*)) {
    return stock(to, list, show, compare);
  });
}

WEFT_EXPORT int scandir64(const char* path, dirent64*** list, int (*filter)(const dirent64*),
                          Compare<dirent64>* compare) {
  WEFT_NEXT(int(const char*, dirent64***, int (*)(const dirent64*), Compare<dirent64>*), stock,
            "scandir64");
  return scan(AT_FDCWD, path, filter, [&](const char* to, int (*show)(const dirent64*)) {
    return stock(to, list, show, compare);
  });
}

WEFT_EXPORT int scandirat(int folder, const char* path, dirent*** list,
                          int (*filter)(const dirent*), Compare<dirent>* compare) {
  WEFT_NEXT(int(int, const char*, dirent***, int (*)(const dirent*), Compare<dirent>*), stock,
            "scandirat");
  return scan(folder, path, filter, [&](const char* to, int (*show)(const dirent*)) {
    return stock(folder, to, list, show, compare);
  });
}

WEFT_EXPORT int scandirat64(int folder, const char* path, dirent64*** list,
                            int (*filter)(const dirent64*), Compare<dirent64>* compare) {
  WEFT_NEXT(int(int, const char*, dirent64***, int (*)(const dirent64*), Compare<dirent64>*), stock,
            "scandirat64");
  return scan(folder, path, filter, [&](const char* to, int (*show)(const dirent64*)) {
    return stock(folder, to, list, show, compare);
  });
}

WEFT_EXPORT dirent* readdir(DIR* folder) {
  WEFT_NEXT(dirent * (DIR*), stock, "readdir");
  return show_type(folder, stock(folder));
}

WEFT_EXPORT dirent64* readdir64(DIR* folder) {
  WEFT_NEXT(dirent64 * (DIR*), stock, "readdir64");
  return show_type(folder, stock(folder));
}

WEFT_EXPORT int readdir_r(DIR* folder, dirent* entry, dirent** result) {
  WEFT_NEXT(int(DIR*, dirent*, dirent**), stock, "readdir_r");
  const int error = stock(folder, entry, result);
  (void)show_type(folder, error == 0 ? *result : nullptr);
  return error;
}

WEFT_EXPORT int readdir64_r(DIR* folder, dirent64* entry, dirent64** result) {
  WEFT_NEXT(int(DIR*, dirent64*, dirent64**), stock, "readdir64_r");
  const int error = stock(folder, entry, result);
  (void)show_type(folder, error == 0 ? *result : nullptr);
  return error;
}
