// Owns the names by which this library refers to libc: those of the oldest glibc it is to run with.
//
// The library is loaded into programs of other distributions, and ld.so refuses one that asks for a
// symbol version that its libc does not know. So nothing may ask for more than GLIBC_2.28
// (tests/e2e/shipped_library.py). What the headers of this machine lead to newer versions is either
// the same function under its former name, by way of the linker's --wrap (CMakeLists.txt), or
// replaced here.
#include <dlfcn.h>
#include <elf.h>
#include <features.h>
#include <link.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdlib>

// The first version of glibc on this kind of machine.
#if defined(__x86_64__)
#define WEFT_FIRST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define WEFT_FIRST_GLIBC "GLIBC_2.17"
#else
#error "Name the first version of glibc on this kind of machine"
#endif

// Declares old_NAME(), libc's NAME under its former version.
#define WEFT_FORMER(result, name, ...) \
  result old_##name(__VA_ARGS__);      \
  __asm__(".symver old_" #name "," #name "@" WEFT_FIRST_GLIBC)

extern "C" {

// Moved from libdl and libpthread into libc with 2.34, and got that version.
WEFT_FORMER(void*, dlsym, void*, const char*);
WEFT_FORMER(int, pthread_create, pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
WEFT_FORMER(int, pthread_join, pthread_t, void**);
WEFT_FORMER(int, pthread_detach, pthread_t);
WEFT_FORMER(int, pthread_once, pthread_once_t*, void (*)());
WEFT_FORMER(int, __pthread_key_create, pthread_key_t*, void (*)(void*));
WEFT_FORMER(int, pthread_key_create, pthread_key_t*, void (*)(void*));
WEFT_FORMER(void*, pthread_getspecific, pthread_key_t);
WEFT_FORMER(int, pthread_setspecific, pthread_key_t, const void*);
WEFT_FORMER(void, pthread_testcancel, void);

void* __wrap_dlsym(void* library, const char* name) { return old_dlsym(library, name); }
int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                          void* argument) {
  return old_pthread_create(thread, attributes, run, argument);
}
int __wrap_pthread_join(pthread_t thread, void** result) {
  return old_pthread_join(thread, result);
}
int __wrap_pthread_detach(pthread_t thread) { return old_pthread_detach(thread); }
int __wrap_pthread_once(pthread_once_t* once, void (*run)()) { return old_pthread_once(once, run); }
int __wrap___pthread_key_create(pthread_key_t* key, void (*destroy)(void*)) {
  return old___pthread_key_create(key, destroy);
}
int __wrap_pthread_key_create(pthread_key_t* key, void (*destroy)(void*)) {
  return old_pthread_key_create(key, destroy);
}
void* __wrap_pthread_getspecific(pthread_key_t key) { return old_pthread_getspecific(key); }
int __wrap_pthread_setspecific(pthread_key_t key, const void* value) {
  return old_pthread_setspecific(key, value);
}
void __wrap_pthread_testcancel() { old_pthread_testcancel(); }

// 2.38: the same, but they know C23's binary numbers ("0b1"), which nothing here reads.
WEFT_FORMER(long, strtol, const char*, char**, int);
WEFT_FORMER(unsigned long, strtoul, const char*, char**, int);
WEFT_FORMER(unsigned long long, strtoull, const char*, char**, int);
WEFT_FORMER(int, vsscanf, const char*, const char*, va_list);

long __wrap___isoc23_strtol(const char* text, char** end, int base) {
  return old_strtol(text, end, base);
}
unsigned long __wrap___isoc23_strtoul(const char* text, char** end, int base) {
  return old_strtoul(text, end, base);
}
unsigned long long __wrap___isoc23_strtoull(const char* text, char** end, int base) {
  return old_strtoull(text, end, base);
}
[[gnu::format(scanf, 2, 3)]] int __wrap___isoc23_sscanf(const char* text, const char* format, ...) {
  va_list values;
  va_start(values, format);
  const int found = old_vsscanf(text, format, values);
  va_end(values);
  return found;
}

// 2.32. libstdc++ leaves out atomic operations where it is not 0.
char __libc_single_threaded = 0;

// 2.36. libstdc++'s std::random_device.
std::uint32_t __wrap_arc4random() {
  std::uint32_t number = 0;
  if (::getentropy(&number, sizeof number) != 0) {
    std::abort();
  }
  return number;
}

}  // extern "C"

#if defined(DLFO_STRUCT_HAS_EH_DBASE)  // glibc 2.35; the unwinder of a libgcc that was built with
                                       // it

namespace {

struct Search {
  std::uintptr_t address;
  dl_find_object* found;
};

int look_into(dl_phdr_info* object, std::size_t, void* data) {
  auto* const search = static_cast<Search*>(data);
  const ElfW(Phdr)* unwinding = nullptr;
  bool inside = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    const std::uintptr_t begin = object->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && search->address - begin < part.p_memsz) {
      inside = true;
      search->found->dlfo_map_start = reinterpret_cast<void*>(begin);
      search->found->dlfo_map_end = reinterpret_cast<void*>(begin + part.p_memsz);
    } else if (part.p_type == PT_GNU_EH_FRAME) {
      unwinding = &part;
    }
  }
  if (!inside || unwinding == nullptr) {
    return 0;
  }
  search->found->dlfo_eh_frame = reinterpret_cast<void*>(object->dlpi_addr + unwinding->p_vaddr);
  return 1;
}

}  // namespace

extern "C" int __wrap__dl_find_object(void* address, dl_find_object* found) noexcept {
  *found = {};
  Search search{reinterpret_cast<std::uintptr_t>(address), found};
  return dl_iterate_phdr(look_into, &search) == 1 ? 0 : -1;
}

#endif
