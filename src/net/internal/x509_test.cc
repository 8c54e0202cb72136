#include "net/internal/x509.h"

#include <gtest/gtest.h>

#include "net/certificates.h"

namespace varda::net::internal {
namespace {

/// A certificate of this subject and these alternative names. "": none.
Owned<X509> certificate_with(const char* common_name, const char* alternative_names) {
  Owned<X509> certificate(X509_new());
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 0x1a2b);
  X509_NAME* const subject = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>("cameras"), -1, -1, 0);
  if (*common_name != '\0')
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(common_name), -1, -1, 0);
  if (*alternative_names != '\0') {
    const Owned<X509_EXTENSION> names(
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, alternative_names));
    X509_add_ext(certificate.get(), names.get(), -1);
  }
  return certificate;
}

TEST(X509, NameFallsBackToAlternativeNameAndSerialNumber) {
  EXPECT_EQ(name_of(*certificate_with("camera-7", "DNS:camera-7.local")), "camera-7");
  EXPECT_EQ(name_of(*certificate_with("", "DNS:camera-7.local,DNS:other")), "camera-7.local");
  EXPECT_EQ(name_of(*certificate_with("", "URI:spiffe://factory/camera-7")),
            "spiffe://factory/camera-7");
  EXPECT_EQ(name_of(*certificate_with("", "email:camera@factory.example")),
            "camera@factory.example");
  EXPECT_EQ(name_of(*certificate_with("", "IP:192.0.2.7")), "192.0.2.7");
  EXPECT_EQ(name_of(*certificate_with("", "RID:1.2.3,IP:2001:db8::7")), "2001:db8::7");
  EXPECT_EQ(name_of(*certificate_with("", "")), "serial 1A2B");
}

}  // namespace
}  // namespace varda::net::internal
