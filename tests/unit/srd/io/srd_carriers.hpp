// Owns the names of the carriers as SRD uses them.
#pragma once

#include "srd/io/envelope_io.hpp"
#include "srd/io/ring_io.hpp"
#include "srd/io/udp_io.hpp"
#include "srd/wire/srd_codec.hpp"

namespace weft::srd::test {

using SrdRings = RingIo<wire::SrdCodec>;
using SrdSockets = UdpIo<wire::SrdCodec>;
using SrdEnvelopes = EnvelopeIo<wire::SrdCodec>;

}  // namespace weft::srd::test
