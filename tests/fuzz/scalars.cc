// Single values: times, quantities, digests, base64, names.
#include <string>

#include "apiserver/kinds/types.h"
#include "base/check.h"
#include "base/log.h"
#include "codec/digest.h"
#include "input.h"
#include "meta/object.h"
#include "meta/quantity.h"
#include "net/internal/socket.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varda;  // NOLINT: one function
  const std::string_view text = fuzz::Input(data, size).rest();
  if (const auto time = meta::parse_time(text); time.ok()) {
    const auto again = meta::parse_time(meta::format_micro_time(*time));
    CHECK(again.ok() && std::chrono::floor<std::chrono::microseconds>(*again) ==
                            std::chrono::floor<std::chrono::microseconds>(*time));
    CHECK(meta::format_time(*again) == meta::format_time(*time));
  }
  if (const auto quantity = meta::canonical_quantity(text); quantity.ok()) {
    const auto again = meta::canonical_quantity(*quantity);
    CHECK(again.ok());
    // Canonical only after two steps because of "15.625Ki": as in Kubernetes it becomes "16000",
    // which becomes "16k".
    CHECK(*meta::canonical_quantity(*again) == *again);
  }
  if (const auto digest = codec::Sha256::parse(text); digest.ok()) CHECK(digest->hex() == text);
  CHECK(codec::unbase64(codec::base64(text)).value() == text);
  if (const auto bytes = codec::unbase64(text); bytes.ok())
    CHECK(codec::unbase64(codec::base64(*bytes)).value() == *bytes);
  CHECK(codec::hex(text).size() == 2 * text.size());
  // Every label is a valid subdomain, and subdomains have no other characters.
  const bool label = meta::check_dns_label(text).empty(),
             subdomain = meta::check_dns_subdomain(text).empty();
  CHECK(!label || subdomain);
  CHECK(!meta::check_dns1035_label(text).empty() || label);
  if (subdomain)
    CHECK(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") ==
          std::string_view::npos);
  (void)meta::check_label_key(text);
  (void)meta::check_label_value(text);
  (void)log::parse_level(text);
  (void)net::internal::Address::parse(std::string(text));
  return 0;
}
