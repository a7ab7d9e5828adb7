// Owns which protocols weftd tells apart.
#pragma once

#include "emu/roce/wire/roce_codec.hpp"
#include "srd/net/frame_codec.hpp"
#include "srd/wire/srd_codec.hpp"

namespace weft::daemon {

using Protocols = srd::net::CodecList<srd::wire::SrdCodec, roce::wire::RoceCodec>;

}  // namespace weft::daemon
