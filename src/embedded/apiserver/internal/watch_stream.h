// The body of a watch: events of the store, translated for one client.
#pragma once

#include <memory>
#include <string>

#include "apiserver/internal/core.h"
#include "apiserver/internal/present.h"
#include "apiserver/internal/selection.h"
#include "net/http.h"

namespace varda::apiserver {

struct WatchRequest {
  KindPtr kind;
  std::string ns;  // "": all
  Selection selection;
  Presentation how;
  std::string resource_version;  // "" and "0": existing objects first, then changes
  bool bookmarks = false;
  std::chrono::seconds timeout{0};  // 0: the server's default
  Identity caller;
};

/// 500 for a malformed resourceVersion; 429 when there are too many watches. For an expired
/// resourceVersion, the stream holds one ERROR event.
Outcome<std::unique_ptr<net::BodyStream>> open_watch(Core& core, WatchRequest request);

}  // namespace varda::apiserver
