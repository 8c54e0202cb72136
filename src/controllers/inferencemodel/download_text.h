// How far a node's download is, in words of a condition's message.
#pragma once

#include <string>
#include <string_view>

#include "api/edgeai/edge_node.h"

namespace varda::controllers {

/// "120 MiB of 1.0 GiB from files.example:8080"; "120 MiB from files.example" if the source does not tell the size; "" while the
/// node has no figures. Of `url` only the host is told.
std::string download_text(const api::EdgeVersionReport& report, std::string_view url);
/// What follows "node N downloads version V": ": 28 MiB of 57 MiB from files.example; the attempt before failed: connection
/// refused".
std::string progress_text(const api::EdgeVersionReport& report, std::string_view url);

}  // namespace varda::controllers
