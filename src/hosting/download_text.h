// Progress of a node's download, as text for a condition's message.
#pragma once

#include <string>
#include <string_view>

#include "api/edgeai/edge_node.h"

namespace varda::hosting {

/// "120 MiB of 1.0 GiB from files.example:8080"; "120 MiB from files.example" if the source gives
/// no size; "" before the first figures. Shows only the host of `url`.
std::string download_text(const api::EdgeVersionReport& report, std::string_view url);
/// The text after "node N downloads version V": ": 28 MiB of 57 MiB from files.example; the attempt
/// before failed: connection refused".
std::string progress_text(const api::EdgeVersionReport& report, std::string_view url);

}  // namespace varda::hosting
