// Owns the cache of images, and running the script that fills it.
#include "emu/softroce/image.hpp"

#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "emu/launch/child.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/weftd_process.hpp"

namespace weft::softroce {
namespace {

// The version of the way in which images are made, as in image.sh: an image that an older weft made
// has another name, and is not used.
constexpr const char* kRecipe = "-r3";

}  // namespace

Result<std::string> cache_folder() {
  for (const auto& [variable, folder] : {std::pair("XDG_CACHE_HOME", "/weft/softroce"),
                                         std::pair("HOME", "/.cache/weft/softroce")}) {
    const char* base = ::getenv(variable);
    if (base != nullptr && base[0] == '/') {
      return std::string(base) + folder;
    }
  }
  return fail(ErrorCode::invalid_argument,
              "set XDG_CACHE_HOME or HOME to a folder: the guest's image is kept there");
}

// The script runs even if there is an image, because it takes the lock: another process may be
// making that very image.
Result<std::string> make_image(const std::string& cache, const std::string& kernel) {
  std::error_code error;
  std::filesystem::create_directories(cache, error);
  if (error) {
    return fail(ErrorCode::io_error, "cannot make the folder '" + cache + "': " + error.message());
  }
  auto script =
      launch::Child::start({.words = {"sh", launch::companion("image.sh", "emu/softroce"), cache,
                                      kernel, launch::companion("init.sh", "emu/softroce")},
                            .death_signal = SIGTERM});
  if (!script) {
    return tl::unexpected(script.error());
  }
  while (!script->ended()) {
    launch::check_interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
  if (*script->ended() != 0) {
    return fail(ErrorCode::io_error, "there is no image of the guest (see above)");
  }
  return cache + "/by-name/" + kernel + kRecipe;
}

}  // namespace weft::softroce
