// Owns the question that CMake asks: does the installed Gloo have the interface that is filled in
// here?
#include <type_traits>

#include "integration/gloo/transport.hpp"

namespace weft::gloo {

static_assert(!std::is_abstract_v<GlooDevice> && !std::is_abstract_v<Context> &&
              !std::is_abstract_v<Pair> && !std::is_abstract_v<UnboundBuffer> &&
              !std::is_abstract_v<PairAddress>);

}  // namespace weft::gloo
