// Fuzzes the decision which paths belong to the emulation.
//
// The preload library sees every path that a program opens. One that it leads elsewhere must lie in
// the device tree, and what a program is shown afterwards must lead there again.
#include "integration/preload/paths.hpp"

#include <stdlib.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "srd/base/check.hpp"

// The library reads it once, before main(): earlier than that.
[[gnu::constructor(101)]] static void choose_root() {
  setenv("WEFT_DEVICES", "/nonexistent/tree", 1);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft::preload;
  const std::string path(reinterpret_cast<const char*>(data), size);
  const Redirected where(path.c_str());
  const std::string root = tree_root();
  if (where.path() == path.c_str()) {
    WEFT_CHECK(where.device() < 0);
    return 0;
  }
  const std::string to = where.path();
  WEFT_CHECK(to.size() < PATH_MAX && to.compare(0, root.size(), root) == 0);
  WEFT_CHECK(to[root.size()] == '/' && where.device() <= 64);
  // What is shown again is a path that leads to the same place.
  std::string shown = to;
  hide_root(shown.data());
  const Redirected again(shown.c_str());
  WEFT_CHECK(std::strcmp(again.path(), to.c_str()) == 0);
  WEFT_CHECK(again.device() == where.device());
  return 0;
}
