// Owns the case about callers with little stack: what stands between them and libc may need little
// more than libc.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <ucontext.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/conformance/guest/cases.hpp"
#include "tests/conformance/storm/queue_pair.hpp"

namespace weft::conformance {
namespace {

// A call with a path, by the function of that name.
struct Call {
  const char* name;
  void (*run)(void* function, const char* path);
};

template <class Function>
Function* as(void* function) {
  return reinterpret_cast<Function*>(function);
}
void shut(int fd) { (void)!(fd >= 0 && syscall(SYS_close, fd) == 0); }
void shut(std::FILE* file) { (void)!(file != nullptr && fclose(file) == 0); }
void shut(DIR* folder) { (void)!(folder != nullptr && closedir(folder) == 0); }

char text[PATH_MAX];
struct stat status;

template <class Stat>
void run_stat(void* f, const char* path) {
  (void)as<int(const char*, Stat*)>(f)(path, reinterpret_cast<Stat*>(text));
}
void run_access(void* f, const char* path) { (void)as<int(const char*, int)>(f)(path, R_OK); }
void run_xattr(void* f, const char* path) {
  (void)as<ssize_t(const char*, const char*, void*, std::size_t)>(f)(path, "user.none", text, 8);
}
void run_list(void* f, const char* path) {
  (void)as<ssize_t(const char*, char*, std::size_t)>(f)(path, text, sizeof text);
}

// All with a path that our library wraps and that change nothing; the 64s are the same code.
constexpr Call kCalls[] = {
    {"open", [](void* f, const char* p) { shut(as<int(const char*, int, ...)>(f)(p, O_RDONLY)); }},
    {"openat",
     [](void* f, const char* p) {
       shut(as<int(int, const char*, int, ...)>(f)(AT_FDCWD, p, O_RDONLY));
     }},
    {"__open_2", [](void* f, const char* p) { shut(as<int(const char*, int)>(f)(p, O_RDONLY)); }},
    {"fopen",
     [](void* f, const char* p) { shut(as<std::FILE*(const char*, const char*)>(f)(p, "r")); }},
    {"opendir", [](void* f, const char* p) { shut(as<DIR*(const char*)>(f)(p)); }},
    {"scandir",
     [](void* f, const char* p) {
       dirent** list = nullptr;
       (void)as<int(const char*, dirent***, int (*)(const dirent*), void*)>(f)(
           p, &list, [](const dirent*) { return 0; }, nullptr);
       std::free(list);
     }},
    {"glob",
     [](void* f, const char* p) {
       glob_t found{};
       (void)as<int(const char*, int, void*, glob_t*)>(f)(p, 0, nullptr, &found);
       globfree(&found);
     }},
    {"stat", run_stat<struct stat>},
    {"lstat", run_stat<struct stat>},
    {"fstatat",
     [](void* f, const char* p) {
       (void)as<int(int, const char*, struct stat*, int)>(f)(AT_FDCWD, p, &status, 0);
     }},
    {"__xstat",
     [](void* f, const char* p) {
       (void)as<int(int, const char*, struct stat*)>(f)(1, p, &status);
     }},
    {"statx",
     [](void* f, const char* p) {
       (void)as<int(int, const char*, int, unsigned, void*)>(f)(AT_FDCWD, p, 0, STATX_ALL, text);
     }},
    {"access", run_access},
    {"eaccess", run_access},
    {"faccessat",
     [](void* f, const char* p) {
       (void)as<int(int, const char*, int, int)>(f)(AT_FDCWD, p, R_OK, 0);
     }},
    {"realpath", [](void* f, const char* p) { (void)as<char*(const char*, char*)>(f)(p, text); }},
    {"canonicalize_file_name",
     [](void* f, const char* p) { std::free(as<char*(const char*)>(f)(p)); }},
    {"readlink", run_list},
    {"readlinkat",
     [](void* f, const char* p) {
       (void)as<ssize_t(int, const char*, char*, std::size_t)>(f)(AT_FDCWD, p, text, sizeof text);
     }},
    {"chdir",
     [](void* f, const char* p) {
       (void)as<int(const char*)>(f)(p);
       demand(syscall(SYS_chdir, "/") == 0, "cannot go back");
     }},
    {"ftw",
     [](void* f, const char* p) {
       (void)as<int(const char*, int (*)(const char*, const struct stat*, int), int)>(f)(
           p, [](const char*, const struct stat*, int) { return 0; }, 4);
     }},
    {"statfs", run_stat<struct statfs>},
    {"statvfs", run_stat<struct statvfs>},
    {"getxattr", run_xattr},
    {"lgetxattr", run_xattr},
    {"listxattr", run_list},
    {"llistxattr", run_list},
    {"inotify_add_watch",
     [](void* f, const char* p) {
       (void)as<int(int, const char*, std::uint32_t)>(f)(-1, p, IN_OPEN);
     }},
};

// Where a path leads, for libc itself.
struct Path {
  const char* wrapped;
  std::string real;
};

std::vector<Path> paths() {
  const char* const tree = std::getenv("WEFT_DEVICES");
  demand(tree != nullptr, "no tree of devices");
  std::vector<Path> all;
  for (const char* const missing :
       {"/no/such/file", "no/such/file", "dev/../no/such", "/dev/../no/such", "/sys//./no/such"}) {
    all.push_back({missing, missing});
  }
  const std::string device = std::string(tree) + "/sys/class/infiniband/efa_0";
  all.push_back({"/sys/class/infiniband/efa_0", device});
  all.push_back({"/sys//class/./infiniband/efa_0", device});
  all.push_back({"sys/class/infiniband/efa_0", device});
  all.push_back({"/sys/class/../class/infiniband/efa_0/ports/../fw_ver", device + "/fw_ver"});
  all.push_back({"/dev/infiniband", std::string(tree) + "/dev/infiniband"});
  return all;
}

// How much stack a call needs, by what it leaves of a pattern.
class Measure {
 public:
  std::size_t operator()(const Call& call, void* function, const char* path) {
    self = this;
    call_ = &call;
    function_ = function;
    path_ = path;
    std::fill(stack_.begin(), stack_.end(), kPattern);
    ucontext_t inside{};
    demand(getcontext(&inside) == 0, "getcontext");
    inside.uc_stack.ss_sp = stack_.data();
    inside.uc_stack.ss_size = stack_.size();
    inside.uc_link = &outside_;
    makecontext(
        &inside, [] { self->call_->run(self->function_, self->path_); }, 0);
    demand(swapcontext(&outside_, &inside) == 0, "swapcontext");
    const auto touched = std::find_if(stack_.begin(), stack_.end(),
                                      [](unsigned char byte) { return byte != kPattern; });
    return static_cast<std::size_t>(stack_.end() - touched);
  }

 private:
  static constexpr unsigned char kPattern = 0xA5;
  static inline Measure* self = nullptr;

  std::vector<unsigned char> stack_ = std::vector<unsigned char>(std::size_t{256} * 1024);
  ucontext_t outside_{};
  const Call* call_ = nullptr;
  void* function_ = nullptr;
  const char* path_ = nullptr;
};

void call_all_wrapped(const std::vector<Path>& where) {
  for (const Path& path : where) {
    for (const Call& call : kCalls) {
      call.run(dlsym(RTLD_DEFAULT, call.name), path.wrapped);
    }
  }
}

void in_a_handler() {
  // As much as SIGSTKSZ was when it was a constant, which is more than twice a frame of most
  // processors; 4 KiB where a frame is larger.
  static std::vector<unsigned char> stack(
      std::max<std::size_t>(8192, static_cast<std::size_t>(sysconf(_SC_MINSIGSTKSZ)) + 4096));
  const stack_t alternate{stack.data(), 0, stack.size()};
  demand(sigaltstack(&alternate, nullptr) == 0, "sigaltstack");
  struct sigaction action {};
  action.sa_flags = SA_ONSTACK;
  action.sa_handler = [](int) {
    for (const char* const path : {"/no/such/file", "no/such/file", "/dev/../no/such"}) {
      demand(stat(path, &status) < 0 && errno == ENOENT, "stat()");
      demand(access(path, R_OK) < 0 && errno == ENOENT, "access()");
      demand(open(path, O_RDONLY) < 0 && errno == ENOENT, "open()");
      demand(readlink(path, text, sizeof text) < 0 && errno == ENOENT, "readlink()");
    }
  };
  demand(sigaction(SIGUSR1, &action, nullptr) == 0 && raise(SIGUSR1) == 0, "no handler");
  const stack_t none{nullptr, SS_DISABLE, 0};
  demand(sigaltstack(&none, nullptr) == 0, "sigaltstack");
}

void in_a_thread(std::vector<Path>& where) {
  pthread_attr_t small;
  pthread_t thread{};
  demand(pthread_attr_init(&small) == 0 &&
             pthread_attr_setstacksize(&small, static_cast<std::size_t>(PTHREAD_STACK_MIN)) == 0,
         "attributes");
  demand(pthread_create(
             &thread, &small,
             [](void* paths) -> void* {
               call_all_wrapped(*static_cast<std::vector<Path>*>(paths));
               return nullptr;
             },
             &where) == 0 &&
             pthread_join(thread, nullptr) == 0,
         "thread");
}

}  // namespace

int small_stacks() {
  // Programs size their stacks by what libc needs; PTHREAD_STACK_MIN and SIGSTKSZ leave some room,
  // and not the PATH_MAX that a copy of a path would take.
  constexpr std::size_t kMaxMore = 2048;
  demand(chdir("/") == 0, "chdir");
  std::vector<Path> where = paths();
  in_a_handler();
  in_a_thread(where);
  void* const libc = dlopen("libc.so.6", RTLD_NOW);
  Measure measure;
  std::size_t most = 0;
  bool fits = true;
  for (const Path& path : where) {
    for (const Call& call : kCalls) {
      const std::size_t stock = measure(call, dlsym(libc, call.name), path.real.c_str());
      const std::size_t here = measure(call, dlsym(RTLD_DEFAULT, call.name), path.wrapped);
      most = std::max(most, here - std::min(here, stock));
      if (here > stock + kMaxMore) {
        std::printf("%s(%s): %zu bytes, libc %zu\n", call.name, path.wrapped, here, stock);
        fits = false;
      }
    }
  }
  std::printf("at most %zu bytes more than libc\n", most);
  return fits ? 0 : 1;
}

}  // namespace weft::conformance
