// History: requests of API server clients, their answers and times; the input of the checker.
//
// Times are ticks of one shared counter. `a.returned < b.invoked` therefore proves that a ended
// before b began.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace varda::linearizability {

using Revision = std::int64_t;
using Tick = std::int64_t;
using Fields = std::map<std::string, std::string>;  // data, and the label "phase"

/// One object as seen by a client.
struct Object {
  std::string key;  // NAMESPACE/NAME
  std::string uid;
  Revision revision = 0;
  Fields fields;
  friend bool operator==(const Object&, const Object&) = default;
};

struct Operation {
  enum class Kind { kCreate, kReplace, kPatch, kDelete, kGet, kList };
  enum class Outcome { kOk, kExists, kConflict, kNotFound };

  Kind kind = Kind::kGet;
  int client = 0;
  Tick invoked = 0, returned = 0;

  std::string key;             // of a list: the namespace
  Fields wanted;               // create, replace: all fields; patch: changed fields
  Revision revision_lock = 0;  // replace, delete: required revision; 0: any
  std::string uid_lock;        // delete: required uid; "": any

  Outcome outcome = Outcome::kOk;
  Object object;              // kOk only: the answer; for a delete only the uid
  Revision revision = 0;      // of a list: the snapshot
  std::vector<Object> items;  // of a list
};

struct Event {
  enum class Type { kAdded, kModified, kDeleted, kBookmark };
  Type type = Type::kBookmark;
  Object object;  // for a bookmark only the revision
  Tick received = 0;
};

/// One section of a watch, ended by its reader or by the server.
struct Watch {
  std::string ns;      // "": all
  std::string phase;   // only objects with this value of the field "phase"; "": all
  Revision after = 0;  // events after this revision
  std::vector<Event> events;
};

struct History {
  Revision begin = 0;  // before the workload's first write
  std::vector<Operation> operations;
  std::vector<Event> log;  // of a watch over everything from `begin` to the last write
  std::vector<Watch> watches;
};

}  // namespace varda::linearizability
