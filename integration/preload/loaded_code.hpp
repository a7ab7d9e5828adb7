// Owns what we want to know of the libraries that are loaded.
//
// dladdr(), dlopen() and dlsym() take the loader's lock, under which another thread may run a
// library's constructor that waits for this one. dl_iterate_phdr() takes only the lock of the list.
#pragma once

namespace weft::preload {

// Whether the address lies in the code of the program or of a loaded library.
[[nodiscard]] bool is_loaded_code(const void* address);

// A function that any of them but this library offers under that name, whatever its scope
// (RTLD_LOCAL); null: none does.
[[nodiscard]] void* find_loaded_function(const char* name);

}  // namespace weft::preload
