// Versions and pages of lists: the state of the collection that a list request reads.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "apiserver/internal/outcome.h"
#include "net/url.h"
#include "store/store.h"

namespace varda::apiserver {

/// True for ?flag, ?flag=1 and ?flag=true.
bool truthy(std::optional<std::string_view> text);

/// An integer query parameter; 400 if malformed.
Outcome<std::optional<std::int64_t>> query_number(const net::Query& query, std::string_view name);

/// ?resourceVersion= as a revision; nullopt if absent, the largest revision if out of range. The
/// Error has the message only; its HTTP code depends on the verb.
Result<std::optional<store::Revision>> parse_version(const net::Query& query);

/// 504 "Too large resource version" for a revision the store has not reached.
Outcome<void> check_not_future(std::optional<store::Revision> revision, const store::Store& store);

/// Start of the next page: the snapshot and the last key already sent, relative to the list's
/// prefix.
struct PageStart {
  /// The latest state instead of a snapshot; used by the token that replaces an expired one.
  static constexpr store::Revision kLatest = -1;
  store::Revision revision = 0;
  std::string after;

  std::string token() const;
  /// 400 for a malformed token.
  static Outcome<PageStart> parse(std::string token);
};

struct ListQuery {
  std::size_t limit = 0;   // 0: no limit
  store::Revision at = 0;  // 0: the latest
  std::optional<PageStart> start;

  /// 422 for invalid combinations, 400 for malformed values, 504 for a future revision.
  static Outcome<ListQuery> parse(const net::Query& query, const store::Store& store);
};

/// 410 for a compacted revision. With `start`, includes a token that continues there in the latest
/// state.
ApiStatus list_expired(const std::optional<PageStart>& start);

/// 422 about ListOptions, with `causes`.
ApiStatus bad_list_options(std::vector<StatusCause> causes);
/// One cause for bad_list_options().
StatusCause forbidden_option(std::string field, std::string_view why);

}  // namespace varda::apiserver
