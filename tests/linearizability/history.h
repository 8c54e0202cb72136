// What clients of an API server asked, what they were told, and when: the input of the checker.
//
// Times are ticks of one counter that every thread draws from, so that `a.returned < b.invoked` says for certain that a was over
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

/// One object as a client saw it.
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
  Fields wanted;               // create, replace: all fields; patch: those that change
  Revision revision_lock = 0;  // replace, delete: the revision the object must have; 0: any
  std::string uid_lock;        // delete: the uid it must have; "": any

  Outcome outcome = Outcome::kOk;
  Object object;              // of kOk: as answered; a delete tells the uid only
  Revision revision = 0;      // of a list: the snapshot
  std::vector<Object> items;  // of a list
};

struct Event {
  enum class Type { kAdded, kModified, kDeleted, kBookmark };
  Type type = Type::kBookmark;
  Object object;  // of a bookmark only the revision
  Tick received = 0;
};

/// One stretch of a watch, ended by its reader or by the server.
struct Watch {
  std::string ns;      // "": all
  std::string phase;   // only objects whose field "phase" is this; "": all
  Revision after = 0;  // events after this revision
  std::vector<Event> events;
};

struct History {
  Revision begin = 0;  // nothing of ours was there
  std::vector<Operation> operations;
  std::vector<Event> log;  // of a watch over everything since `begin`, up to the last write
  std::vector<Watch> watches;
};

}  // namespace varda::linearizability
