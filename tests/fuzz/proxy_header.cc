// PROXY headers of version 2 from connections, with identities of workers.
//
// Every prefix of a header asks for more bytes or fails like the whole. What was read is written
// back. No input has an identity that the authority signed.
#include <string>

#include "base/check.h"
#include "input.h"
#include "net/certificates.h"
#include "net/proxy_protocol.h"

namespace {

using namespace varda;       // NOLINT: a program of one file
using namespace varda::net;  // NOLINT

const std::string& authority() {
  static const std::string pem = make_ca("edge", std::chrono::hours(24)).value().certificate_pem;
  return pem;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = varda::fuzz::Input(data, size).rest();
  const auto whole = parse_proxy_header(bytes);
  for (std::size_t cut = 0; cut < std::min<std::size_t>(bytes.size(), 64); ++cut) {
    const auto part = parse_proxy_header(bytes.substr(0, cut));
    if (part.ok() && *part) CHECK(whole.ok() && *whole && (*whole)->header == (*part)->header);
    if (!part.ok()) CHECK(!whole.ok());
  }
  if (!whole.ok() || !*whole) return 0;
  CHECK((*whole)->bytes >= kProxyFixedBytes && (*whole)->bytes <= bytes.size());
  const ProxyHeader& header = (*whole)->header;
  const auto written = write_proxy_header(header);
  CHECK(written.ok());
  const auto again = parse_proxy_header(*written + std::string(bytes.substr((*whole)->bytes)));
  CHECK(again.ok() && *again && (*again)->header == header && (*again)->bytes == written->size());
  for (const bool loopback : {false, true}) {
    const auto identity =
        check_identity(header, {.authority_pem = authority(), .trust_unsigned_loopback = loopback},
                       loopback, std::chrono::system_clock::now());
    if (!identity.ok() || !*identity) continue;
    CHECK(loopback && !(*identity)->is_signed && !header.local);
    CHECK((*identity)->node == header.find(0xE0) && (*identity)->worker == header.find(0xE1));
  }
  return 0;
}
