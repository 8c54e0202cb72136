// Numbers of versions, for servers without version names: TensorFlow Serving, Triton.
//
// The number is a pure function of the name, the same in the cloud layer and on every node, so no
// table is needed. A name that is an integer from 1 to 999999999 ("3") has that number, so clients
// can ask for /versions/3. Any other name ("v4", "2024-05-01", "007") has a number from 10^9 up,
// derived from its SHA-256. The greater number need not be the newer version. Callers must
// therefore hide numbers above the version to serve.
#pragma once

#include <cstdint>
#include <string_view>

namespace varda::api {

std::uint64_t version_number(std::string_view version);

/// The number of another archive under a name that has a number already: servers load a number only
/// once. The result is above all numbers of names.
std::uint64_t version_number(std::string_view version, std::string_view sha256);

}  // namespace varda::api
