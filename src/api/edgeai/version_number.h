// Numbers of versions, for servers that know no names: TensorFlow Serving, Triton.
//
// A pure function of the name, the same in the cloud layer and on every node, so that nobody has to keep a table: a name that is a
// whole number from 1 to 999999999 ("3") is that number, for clients that ask for /versions/3. Any other name ("v4", "2024-05-01",
// "007") has a number from 10^9 up that its SHA-256 makes. The greater number need not be the newer version: whoever shows versions
// hides the numbers above the one that shall serve.
#pragma once

#include <cstdint>
#include <string_view>

namespace varda::api {

std::uint64_t version_number(std::string_view version);

/// For another archive under a name whose number shows one already: servers load a number once. Above all numbers of names.
std::uint64_t version_number(std::string_view version, std::string_view sha256);

}  // namespace varda::api
