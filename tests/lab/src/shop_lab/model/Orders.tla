------------------------------- MODULE Orders -------------------------------
(***************************************************************************)
(* Orders of one user: checkout's sagas, its journal on a database that    *)
(* may fail over to a lagging standby, the ledgers of payment and          *)
(* shipping, and a cart that its user never waits for. Actions have the    *)
(* names of the steps in commands.py and of the methods of Journal in      *)
(* ports.py. README.md describes what is left out.                         *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    Requests,    \* of the user; each has another card and address
    Malformed,   \* those whose card payment refuses without an entry
    Prices,      \* of a cart that is not modelled; a price may change between two requests
    OneScope,    \* TRUE: all requests of one cart have one scope, FALSE: each request has its own
    HasKey,      \* TRUE: the scope is an idempotency key, FALSE: the cart's etag
    Tasks,       \* concurrent workers
    MaxAttempts, \* orders with more attempts are not followed any further
    Failovers,   \* TRUE: commits may vanish
    HasManifest, \* FALSE: shipping has no ResolveOrFence, and forgets what it shipped
    Kinds,       \* of the outbox, "empty_cart" among them; {}: without outbox and cart, an order ends as SHIPPED
    Items,       \* at most so many are put into the cart
    Retention,   \* TRUE: old orders, and later their shipments, are deleted
    Purchases,   \* TRUE: payment captures one charge of a purchase
    Quiet,       \* TRUE: the faults may end, after which every order must settle
    Without      \* the safeguard that is removed; "" for none

VARIABLES
    journal,     \* the row of each scope, on the primary
    standby,     \* what the standby has of it
    charges,     \* payment's entry of each key
    shipments,   \* shipping's entry of each key
    tasks,       \* the saga that each worker runs
    delayed,     \* calls that may still arrive
    sent,        \* what the outbox has sent and not settled, by scope and kind
    mailed,      \* orders that were confirmed
    cart,        \* its quantity and generation; all items that were added, or emptied; what was read and may be ordered
    quiet        \* the faults have ended

vars == <<journal, standby, charges, shipments, tasks, delayed, sent, mailed, cart, quiet>>
peers == <<charges, shipments, delayed>>
notified == <<sent, mailed, cart>>

Outbox == Kinds # {}
\* Without a key the scope is the etag, which every change of the cart replaces.
Scopes == CASE ~OneScope -> Requests [] OneScope /\ (HasKey \/ ~Outbox) -> {"cart"} [] OTHER -> 1..2 * Items
ScopeOf(r, read) == IF ~OneScope THEN r ELSE IF HasKey \/ ~Outbox THEN "cart" ELSE read.etag
Ids == IF Without = "derived id" THEN {1, 2} ELSE {1}
Keys == Scopes \X Ids \X (1..MaxAttempts + 1)
\* The price of a modelled cart is its quantity.
Content(r, price, generation) == [request |-> r, price |-> price, generation |-> generation]
NoContent == Content("none", 0, 0)

Released == {"ABANDONED", "DECLINED", "VOIDED"}
Live == {"CHARGING", "VOIDING", "SHIPPED", "DONE", "NEEDS_REFUND", "NEEDS_REVIEW"}

Restorable == {"SHIPPED", "VOIDING", "NEEDS_REVIEW"}
NoRow == [state |-> "NONE"]
Idle == [pc |-> "idle"]
NoEntry == [state |-> "NONE", content |-> NoContent, times |-> 0]

Init ==
    /\ journal = [s \in Scopes |-> NoRow]
    /\ standby = journal
    /\ charges = [k \in Keys |-> NoEntry]
    /\ shipments = [k \in Keys |-> "NONE"]
    /\ tasks = [t \in Tasks |-> Idle]
    /\ delayed = {}
    /\ sent = [s \in Scopes |-> [k \in Kinds |-> "no"]]
    /\ mailed = {}
    /\ cart = [quantity |-> 1, generation |-> 1, etag |-> 1, added |-> 1, emptied |-> 0,
               read |-> {[etag |-> 1, generation |-> 1, price |-> 1]}]
    /\ quiet = FALSE

-----------------------------------------------------------------------------
(* Purchases. The owner is random in the code. Here it is the task, and rows  *)
(* lose the owner when its task ends, because no later task has it.        *)

Forget(rows, t) ==
    [s \in Scopes |-> IF rows[s] # NoRow /\ rows[s].owner = t THEN [rows[s] EXCEPT !.owner = "none"] ELSE rows[s]]

Row(t) == journal[tasks[t].scope]

Holds(t) ==
    /\ Row(t) # NoRow
    /\ Row(t).id = tasks[t].id
    /\ Without = "claim" \/ (Row(t).attempt = tasks[t].attempt /\ Row(t).owner = tasks[t].owner)

\* The lease of a live worker may expire at any time, except when there are no faults.
Leased(row) == quiet /\ \E t \in Tasks : tasks[t] # Idle /\ tasks[t].owner = row.owner

\* The unique index of the journal: of a generation one order is live. Whoever meets it waits.
CartIsFree(s, generation) ==
    \/ Without = "cart constraint"
    \/ \A other \in Scopes \ {s} : journal[other].state \in Live => journal[other].content.generation # generation

\* Without an entry: a malformed card, or a purchase (a cart of one generation) that another key's charge has paid for.
IsRefused(key, content) ==
    \/ content.request \in Malformed
    \/ /\ Purchases
       /\ \E k \in Keys \ {key} : charges[k].state = "CHARGED" /\ charges[k].content.generation = content.generation

\* What payment compares under a key.
Same(one, other) ==
    IF Purchases /\ Without # "a key's purchase" THEN one = other
    ELSE one.request = other.request /\ one.price = other.price

-----------------------------------------------------------------------------
(* Steps of tasks. *)

Key(t) == <<tasks[t].scope, tasks[t].id, tasks[t].attempt>>

\* Each step sets what the next one depends on, and resets the rest.
Defaults == [
    restored |-> FALSE, after |-> "ABANDONED", before |-> "CHARGING", to |-> "CHARGING", loop |-> "Charge",
    why |-> "refused"]

Start(t, s, row, pc, new, resumed) ==
    /\ journal' = [journal EXCEPT ![s] = row]
    /\ tasks' = [tasks EXCEPT ![t] = [after |-> row.after] @@ Defaults @@ [
        pc |-> pc, scope |-> s, id |-> row.id, attempt |-> row.attempt, owner |-> row.owner, content |-> row.content,
        new |-> new, resumed |-> resumed /\ ~HasManifest]]
    /\ UNCHANGED <<standby, peers, notified, quiet>>

Continue(t, changes) ==
    /\ tasks' = [tasks EXCEPT ![t] = changes @@ Defaults @@ @]
    /\ UNCHANGED <<journal, standby, notified, quiet>>

End(t, rows) ==
    /\ tasks' = [tasks EXCEPT ![t] = Idle]
    /\ journal' = Forget(rows, t)
    /\ standby' = Forget(standby, t)

NextAttempt(t, loop) == Continue(t, [pc |-> "Update", before |-> "CHARGING", to |-> "CHARGING", loop |-> loop])
EndAs(t, before, to) == Continue(t, [pc |-> "Update", before |-> before, to |-> to])

\* Calls that still may have an effect.
Pending(calls) ==
    {c \in calls :
        CASE c.call \in {"Charge", "Resolve"} -> charges'[c.key].state = "NONE"
          [] c.call = "Void" -> charges'[c.key].state = "CHARGED"
          [] OTHER -> shipments'[c.key] = "NONE"}

Record(key, state, content) ==
    /\ charges' = [charges EXCEPT ![key] = [state |-> state, content |-> content, times |-> @.times + 1]]
    /\ UNCHANGED shipments
    /\ delayed' = Pending(delayed)

RecordShipment(key, entry) ==
    /\ shipments' = [shipments EXCEPT ![key] = entry]
    /\ UNCHANGED charges
    /\ delayed' = Pending(delayed)

-----------------------------------------------------------------------------
(* Calls of customers, and recovery. *)

Insert(t, s, content) ==
    /\ tasks[t] = Idle
    /\ journal[s] = NoRow
    /\ CartIsFree(s, content.generation)
    /\ \E id \in Ids :
        LET row == [
            state |-> "CHARGING", attempt |-> 1, owner |-> t, id |-> id,
            content |-> content, outbox |-> {}, after |-> "ABANDONED"]
        IN Start(t, s, row, "Charge", TRUE, FALSE)

Claimed(t, row) == [row EXCEPT !.owner = t]

\* The cart is read anew. With a key only the same request begins again, unless its card was malformed.
reopen(t, s, read) ==
    LET row == journal[s]
        content == IF Without = "reading at reopening" THEN [read EXCEPT !.price = row.content.price] ELSE read
    IN
    /\ tasks[t] = Idle
    /\ row.state \in Released
    /\ \/ ~HasKey
       \/ row.state = "ABANDONED" /\ row.content.request = read.request
       \/ row.state = "DECLINED" /\ row.content.request \in Malformed
    /\ CartIsFree(s, content.generation)
    /\ Start(t, s, [Claimed(t, row) EXCEPT !.state = "CHARGING", !.attempt = @ + 1, !.content = content, !.after = "ABANDONED"],
             "Charge", FALSE, FALSE)

\* A customer's read of the cart may be as old as the retention.
Reads ==
    IF Outbox THEN cart.read ELSE {[etag |-> 1, generation |-> 1, price |-> price] : price \in Prices}

PlaceOrder(t) ==
    \E r \in Requests, read \in Reads :
        LET s == ScopeOf(r, read)
            content == Content(r, read.price, read.generation)
        IN s \in Scopes /\ (Insert(t, s, content) \/ reopen(t, s, content))

take_over(t, s, r) ==
    LET row == journal[s] IN
    /\ tasks[t] = Idle
    /\ row.state = "CHARGING"
    /\ row.content.request = r
    /\ ~Leased(row)
    /\ Start(t, s, Claimed(t, row), IF row.after = "ABANDONED" THEN "Charge" ELSE "Resolve", FALSE, TRUE)

claim_expired(t, s) ==
    LET row == journal[s] IN
    /\ tasks[t] = Idle
    /\ row.state \in {"CHARGING", "VOIDING"}
    /\ ~Leased(row)
    /\ Start(t, s, Claimed(t, row), IF row.state = "VOIDING" THEN "Void" ELSE "Resolve", FALSE, TRUE)

-----------------------------------------------------------------------------
(* Commands of sagas. *)

Decide(t) ==
    IF IsRefused(Key(t), tasks[t].content)
    THEN Continue(t, [pc |-> "Resolve", after |-> "DECLINED"]) /\ UNCHANGED peers
    ELSE \/ Record(Key(t), "CHARGED", tasks[t].content) /\ Continue(t, [pc |-> "Ship"])
         \/ Record(Key(t), "DECLINED", tasks[t].content) /\ Continue(t, [pc |-> "Resolve", after |-> "DECLINED"])

Charge(t) ==
    LET entry == charges[Key(t)] IN
    /\ tasks[t].pc = "Charge"
    /\ IF entry.state = "NONE" \/ (Without = "payment's key" /\ entry.state = "CHARGED")
       THEN Decide(t)
       ELSE /\ UNCHANGED peers
            /\ CASE entry.state = "FENCED" -> NextAttempt(t, "Charge")
                 [] entry.state # "FENCED" /\ ~Same(entry.content, tasks[t].content) ->
                        Continue(t, [pc |-> "ResolveReused"])
                 [] OTHER ->
                        IF entry.state = "CHARGED" THEN Continue(t, [pc |-> "Ship"])
                        ELSE Continue(t, [pc |-> "Resolve", after |-> entry.state])

\* The end of resolve() in saga.py: behind a new fence only.
Resolve(t) ==
    LET entry == charges[Key(t)]
        isOwn == IF Without = "fingerprint of charges" THEN entry.content.price = tasks[t].content.price
                                                       ELSE Same(entry.content, tasks[t].content)
        after == IF tasks[t].after # "ABANDONED" \/ entry.state = "FENCED" THEN tasks[t].after ELSE entry.state
    IN
    /\ tasks[t].pc = "Resolve"
    /\ IF entry.state = "NONE"
       THEN /\ EndAs(t, "CHARGING", tasks[t].after)
            /\ IF Without = "fence" THEN UNCHANGED peers ELSE Record(Key(t), "FENCED", NoContent)
       ELSE /\ UNCHANGED peers
            /\ CASE entry.state = "CHARGED" /\ isOwn -> Continue(t, [pc |-> "Ship", resumed |-> ~HasManifest])
                 [] entry.state = "CHARGED" /\ ~isOwn ->
                        Continue(t, [pc |-> "ResolveShipment", why |-> "displaced"])
                 [] entry.state = "FENCED" /\ Without = "report of fences" -> EndAs(t, "CHARGING", after)
                 [] OTHER ->
                        Continue(t, [pc |-> "Update", before |-> "CHARGING", to |-> "CHARGING", loop |-> "Resolve",
                                     after |-> after])

\* The key has another content: Resolve in charge() of saga.py.
ResolveReused(t) ==
    /\ tasks[t].pc = "ResolveReused"
    /\ UNCHANGED peers
    /\ IF charges[Key(t)].state = "CHARGED"
       THEN Continue(t, [pc |-> "ResolveShipment", why |-> "displaced"])
       ELSE NextAttempt(t, "Charge")

Ship(t) ==
    LET entry == shipments[Key(t)]
        request == tasks[t].content.request
        isInDoubt == tasks[t].resumed /\ Without # "review" \* only without a manifest
    IN
    /\ tasks[t].pc = "Ship"
    /\ \/ /\ isInDoubt
          /\ EndAs(t, "CHARGING", "NEEDS_REVIEW")
          /\ UNCHANGED peers
       \/ /\ ~isInDoubt /\ entry \in {"NONE", "FORGOTTEN", request}
          /\ EndAs(t, "CHARGING", "SHIPPED")
          /\ IF entry # request THEN RecordShipment(Key(t), request) ELSE UNCHANGED peers
       \* Shipping may refuse this try even if it accepted an earlier one or will accept a later one.
       \/ /\ ~isInDoubt /\ entry # "FENCED"
          /\ Continue(t, [pc |-> "ResolveShipment", why |-> "refused"])
          /\ UNCHANGED peers
       \/ /\ entry = "FENCED"
          /\ EndAs(t, "CHARGING", "VOIDING")
          /\ UNCHANGED peers
       \/ /\ entry \in Requests \ {request}
          /\ Continue(t, [pc |-> "ResolveShipment", why |-> "displaced"])
          /\ UNCHANGED peers

ResolveShipment(t) ==
    LET known == shipments[Key(t)]
        \* What shipping may have forgotten is no proof: its records begin later than the charge.
        entry == IF known = "FORGOTTEN" /\ Without = "proof of shipments" THEN "NONE" ELSE known
        refused == tasks[t].why = "refused"
    IN
    /\ tasks[t].pc = "ResolveShipment"
    /\ IF HasManifest
       THEN \/ /\ entry = "NONE"
               /\ EndAs(t, "CHARGING", "VOIDING")
               /\ IF Without = "shipping's fence" \/ known # "NONE" THEN UNCHANGED peers
                  ELSE RecordShipment(Key(t), "FENCED")
            \/ /\ entry # "NONE"
               /\ EndAs(t, "CHARGING", IF entry = "FENCED" THEN "VOIDING" ELSE IF refused /\ entry # "FORGOTTEN" THEN "SHIPPED"
                                       ELSE "NEEDS_REVIEW")
               /\ UNCHANGED peers
       ELSE /\ UNCHANGED peers
            /\ EndAs(t, "CHARGING", IF refused THEN "VOIDING" ELSE "NEEDS_REVIEW")

Void(t) ==
    LET entry == charges[Key(t)] IN
    /\ tasks[t].pc = "Void"
    /\ IF entry.state \in {"CHARGED", "VOIDED"}
       THEN Continue(t, [pc |-> "Update", before |-> "VOIDING", to |-> "CHARGING", loop |-> "Resolve", after |-> "VOIDED"])
       ELSE EndAs(t, "VOIDING", "NEEDS_REFUND")
    /\ IF entry.state = "CHARGED"
       THEN /\ charges' = [charges EXCEPT ![Key(t)].state = "VOIDED"]
            /\ UNCHANGED shipments
            /\ delayed' = Pending(delayed)
       ELSE UNCHANGED peers

\* The update applies.
Write(t) ==
    LET task == tasks[t]
        row == [Row(t) EXCEPT !.state = task.to, !.outbox = IF Outbox /\ task.to = "SHIPPED" THEN Kinds ELSE @]
    IN
    /\ Holds(t)
    /\ Row(t).state = task.before
    /\ CASE task.to = "CHARGING" ->
            LET next == [row EXCEPT !.attempt = @ + 1, !.after = task.after] IN
            /\ journal' = [journal EXCEPT ![task.scope] = next]
            /\ tasks' = [tasks EXCEPT ![t] =
                    [pc |-> task.loop, attempt |-> next.attempt, after |-> task.after] @@ Defaults @@ @]
            /\ UNCHANGED standby
         [] task.to = "VOIDING" ->
            /\ journal' = [journal EXCEPT ![task.scope] = row]
            /\ tasks' = [tasks EXCEPT ![t] = [pc |-> "Void"] @@ Defaults @@ @]
            /\ UNCHANGED standby
         [] task.to = "SHIPPED" /\ Outbox ->
            /\ journal' = [journal EXCEPT ![task.scope] = row]
            /\ tasks' = [tasks EXCEPT ![t].pc = "Send"]
            /\ UNCHANGED standby
         [] OTHER -> End(t, [journal EXCEPT ![task.scope] = row])

\* The journal has lost the order, and its first worker records it again.
Restore(t) ==
    LET task == tasks[t] IN
    /\ task.pc = "Update"
    /\ task.new /\ ~task.restored /\ task.to \in Restorable
    /\ Row(t) = NoRow
    /\ CartIsFree(task.scope, task.content.generation)
    /\ journal' = [journal EXCEPT ![task.scope] = [
        state |-> "CHARGING", attempt |-> task.attempt, owner |-> task.owner, id |-> task.id,
        content |-> task.content, outbox |-> {}, after |-> "ABANDONED"]]
    /\ tasks' = [tasks EXCEPT ![t].restored = TRUE]
    /\ UNCHANGED <<standby, peers, notified, quiet>>

Superseded(t) ==
    /\ ~(Holds(t) /\ Row(t).state = tasks[t].before)
    /\ ~(/\ tasks[t].new /\ ~tasks[t].restored /\ tasks[t].to \in Restorable
         /\ Row(t) = NoRow /\ CartIsFree(tasks[t].scope, tasks[t].content.generation))
    /\ End(t, journal)

Update(t) ==
    /\ tasks[t].pc = "Update"
    /\ Write(t) \/ Superseded(t)
    /\ UNCHANGED <<peers, notified, quiet>>

-----------------------------------------------------------------------------
(* The outbox. A kind is sent and settled by one replica at a time; the    *)
(* e-mail and the cart of an order may be settled by two.                  *)

\* A change of the cart: a new etag, which customers may read.
Changed(before, quantity, generation) ==
    [before EXCEPT !.quantity = quantity, !.generation = generation, !.etag = @ + 1,
                   !.read = IF quantity = 0 THEN @
                            ELSE @ \union {[etag |-> before.etag + 1, generation |-> generation, price |-> quantity]}]

\* Only from the cart of the ordered generation, which ends: once, although it may be sent again.
Remove(content) ==
    IF cart.generation # content.generation /\ Without # "generation of the removal" THEN cart
    ELSE Changed(cart, IF cart.quantity > content.price THEN cart.quantity - content.price ELSE 0, cart.generation + 1)

SendKinds(s, id, content, kinds) ==
    /\ mailed' = IF "email" \in kinds THEN mailed \union {<<s, id>>} ELSE mailed
    /\ cart' = IF "empty_cart" \in kinds THEN Remove(content) ELSE cart
    /\ sent' = [sent EXCEPT ![s] = [k \in Kinds |-> IF k \in kinds THEN "sent" ELSE @[k]]]

\* Started before the update to SHIPPED, it may take effect before it or without it.
StartRemoval(t) ==
    LET task == tasks[t] IN
    /\ Outbox
    /\ \/ task.pc = "Update" /\ task.to = "SHIPPED"
       \/ task.pc = "Ship" /\ Without = "shipment before removal"
    /\ cart' = Remove(task.content)
    /\ cart' # cart
    /\ UNCHANGED <<journal, standby, peers, tasks, sent, mailed, quiet>>

\* By an order that waits for the cart: the removal of a placed one, or one that was sent before and arrives late.
give_way(s) ==
    /\ Outbox
    /\ journal[s].state \in {"SHIPPED", "DONE"}
    /\ cart' = Remove(journal[s].content)
    /\ cart' # cart
    /\ UNCHANGED <<journal, standby, peers, tasks, sent, mailed, quiet>>

\* By the task of the order, which may have lost its row in the meantime.
Send(t) ==
    LET task == tasks[t] IN
    /\ task.pc = "Send"
    /\ End(t, journal)
    /\ \E kinds \in SUBSET {k \in Kinds : sent[task.scope][k] = "no"} : SendKinds(task.scope, task.id, task.content, kinds)
    /\ UNCHANGED <<peers, quiet>>

claim_outbox(s, k) ==
    /\ journal[s].state = "SHIPPED"
    /\ k \in journal[s].outbox
    /\ sent[s][k] = "no"
    /\ SendKinds(s, journal[s].id, journal[s].content, {k})
    /\ UNCHANGED <<journal, standby, peers, tasks, quiet>>

InTransaction == {"deleted", "done", "not done"}

\* A transaction that locks the order, deletes the item, looks for other items as committed, and commits.
settle(s, k) ==
    LET row == journal[s] IN
    /\ \/ /\ sent[s][k] = "sent"
          /\ Kinds # {k}
          /\ Without = "settle's lock" \/ \A other \in Kinds : sent[s][other] \notin InTransaction
          /\ sent' = [sent EXCEPT ![s][k] = "deleted"]
          /\ UNCHANGED journal
       \/ /\ sent[s][k] = "deleted"
          /\ sent' = [sent EXCEPT ![s][k] =
                IF row.state = "SHIPPED" /\ row.outbox \ {k} = {} THEN "done" ELSE "not done"]
          /\ UNCHANGED journal
       \* Of an only kind one step is enough.
       \/ /\ sent[s][k] \in IF Kinds = {k} THEN {"sent"} ELSE {"done", "not done"}
          /\ sent' = [sent EXCEPT ![s][k] = "no"]
          /\ journal' = IF row = NoRow THEN journal
                        ELSE [journal EXCEPT ![s].outbox = @ \ {k},
                                             ![s].state = IF sent[s][k] # "not done" /\ @ = "SHIPPED" THEN "DONE" ELSE @]
    /\ UNCHANGED <<standby, peers, tasks, mailed, cart, quiet>>

settle_complete(s) ==
    /\ Outbox
    /\ journal[s].state = "SHIPPED" /\ journal[s].outbox = {}
    /\ journal' = [journal EXCEPT ![s].state = "DONE"]
    /\ UNCHANGED <<standby, peers, tasks, notified, quiet>>

Captured == {k \in Keys : charges[k].state = "CHARGED"}
Shipped == {k \in Keys : shipments[k] \in Requests \union {"FORGOTTEN"}}
KeyOf(s) == <<s, journal[s].id, journal[s].attempt>>
IsShipped(s) ==
    journal[s] # NoRow /\ KeyOf(s) \in Shipped /\ Same(charges[KeyOf(s)].content, journal[s].content)

\* An operator settles an order by what has become of it.
close(s) ==
    /\ Outbox
    /\ journal[s].state \in {"NEEDS_REFUND", "NEEDS_REVIEW"}
    /\ journal' = [journal EXCEPT ![s].state = IF IsShipped(s) THEN "SHIPPED" ELSE "SETTLED",
                                  ![s].outbox = IF IsShipped(s) THEN Kinds ELSE @]
    /\ UNCHANGED <<standby, peers, tasks, notified, quiet>>

\* A reopened order is not old any more. All that began before the orders of an ended generation has ended.
delete_old(s) ==
    /\ Retention
    /\ journal[s].state \in Released \union {"DONE"} \/ (Without = "retention's guards" /\ journal[s] # NoRow /\ journal[s].attempt > 1)
    /\ journal' = [journal EXCEPT ![s] = NoRow]
    /\ cart' = [cart EXCEPT !.read = {read \in @ : read.generation = cart.generation}]
    /\ UNCHANGED <<standby, peers, tasks, sent, mailed, quiet>>

\* By the retention of shipping, which is longer.
forget(k) ==
    /\ Retention
    /\ journal[k[1]] = NoRow
    /\ shipments[k] \in Requests
    /\ RecordShipment(k, "FORGOTTEN")
    /\ UNCHANGED <<journal, standby, tasks, notified, quiet>>

AddItem ==
    /\ ~quiet
    /\ Outbox /\ cart.added < Items
    /\ cart' = [Changed(cart, cart.quantity + 1, cart.generation) EXCEPT !.added = @ + 1]
    /\ UNCHANGED <<journal, standby, peers, tasks, sent, mailed, quiet>>

RECURSIVE Total(_)
Total(keys) == IF keys = {} THEN 0 ELSE LET k == CHOOSE k \in keys : TRUE IN charges[k].content.price + Total(keys \ {k})

\* Items of shipped orders that are still to be removed.
Held == Total({KeyOf(s) : s \in {s \in Scopes : IsShipped(s) /\ journal[s].content.generation = cart.generation}})

\* By the customer, or the cart is lost with its store.
EmptyCart ==
    /\ ~quiet /\ ~Failovers
    /\ Outbox /\ cart.quantity > 0
    /\ cart' = [Changed(cart, 0, cart.generation + 1) EXCEPT !.emptied = @ + cart.quantity - Held]
    /\ UNCHANGED <<journal, standby, peers, tasks, sent, mailed, quiet>>

-----------------------------------------------------------------------------
(* Faults: any number of them, at any moment. *)

Die(t) ==
    /\ ~quiet
    /\ tasks[t] # Idle
    /\ End(t, journal)
    /\ UNCHANGED <<peers, notified, quiet>>

\* A replica dies with what it has sent but not settled.
DieUnsettled(s, k) ==
    /\ ~quiet
    /\ sent[s][k] # "no"
    /\ sent' = [sent EXCEPT ![s][k] = "no"]
    /\ UNCHANGED <<journal, standby, peers, tasks, mailed, cart, quiet>>

\* A call without a response: it may be lost, or arrive at any time. The task repeats it, or dies.
Delay(t) ==
    LET pc == tasks[t].pc
        call == IF pc = "ResolveReused" THEN "Resolve" ELSE pc
        message == [call |-> call, key |-> Key(t),
                    content |-> IF call \in {"Charge", "Ship"} THEN tasks[t].content ELSE NoContent]
    IN
    /\ ~quiet
    /\ pc \in {"Charge", "Resolve", "ResolveReused", "Ship", "ResolveShipment", "Void"}
    /\ UNCHANGED <<charges, shipments, journal, standby, notified, quiet>>
    /\ delayed' = Pending(delayed \union {message})
    /\ tasks' = IF pc = "Ship" /\ ~HasManifest THEN [tasks EXCEPT ![t].resumed = TRUE] ELSE tasks

Arrive(m) ==
    /\ ~quiet
    /\ CASE m.call = "Charge" ->
            /\ ~IsRefused(m.key, m.content)
            /\ Record(m.key, "CHARGED", m.content) \/ Record(m.key, "DECLINED", m.content)
         [] m.call = "Resolve" -> Without # "fence" /\ Record(m.key, "FENCED", NoContent)
         [] m.call = "Ship" -> RecordShipment(m.key, m.content.request)
         [] m.call = "ResolveShipment" ->
            HasManifest /\ Without # "shipping's fence" /\ RecordShipment(m.key, "FENCED")
         [] OTHER ->
            /\ charges' = [charges EXCEPT ![m.key].state = "VOIDED"]
            /\ UNCHANGED shipments
            /\ delayed' = Pending(delayed)
    /\ UNCHANGED <<journal, standby, tasks, notified, quiet>>

Deliver == \E m \in delayed : Arrive(m)

Replicate ==
    /\ Failovers /\ ~quiet
    /\ standby' = journal
    /\ UNCHANGED <<journal, peers, tasks, notified, quiet>>

\* The standby replaces the primary: the commits since Replicate vanish, and open transactions fail.
FailOver ==
    /\ Failovers /\ ~quiet
    /\ journal' = standby
    /\ sent' = [s \in Scopes |-> [k \in Kinds |-> IF sent[s][k] \in InTransaction THEN "sent" ELSE sent[s][k]]]
    /\ UNCHANGED <<standby, peers, tasks, mailed, cart, quiet>>

\* From now on there are no faults, and what is still on its way is lost.
Quiesce ==
    /\ Quiet /\ ~quiet
    /\ quiet' = TRUE
    /\ delayed' = {}
    /\ UNCHANGED <<journal, standby, charges, shipments, tasks, notified>>

-----------------------------------------------------------------------------
Settled(s) ==
    LET row == journal[s]
        captured == {k \in Captured : k[1] = s}
        shipped == {k \in Shipped : k[1] = s}
    IN
    CASE row.state = IF Outbox THEN "DONE" ELSE "SHIPPED" -> captured = shipped /\ Cardinality(shipped) = 1
      [] row.state = "SETTLED" -> TRUE
      [] row.state \in {"NONE", "ABANDONED", "DECLINED", "VOIDED"} -> captured = {}
      [] row.state \in {"NEEDS_REFUND", "NEEDS_REVIEW"} -> TRUE
      [] OTHER -> FALSE

\* Without it, TLC would report settled orders as deadlocks.
Stop ==
    /\ quiet
    /\ \A t \in Tasks : tasks[t] = Idle
    /\ \A s \in Scopes : Settled(s)
    /\ UNCHANGED vars

Next ==
    \/ \E t \in Tasks :
        \/ PlaceOrder(t)
        \/ \E s \in Scopes : claim_expired(t, s) \/ \E r \in Requests : take_over(t, s, r)
        \/ Charge(t) \/ Resolve(t) \/ ResolveReused(t) \/ Ship(t) \/ ResolveShipment(t) \/ Void(t)
        \/ Update(t) \/ Restore(t) \/ StartRemoval(t) \/ Send(t)
        \/ Die(t) \/ Delay(t)
    \/ \E s \in Scopes :
        \/ \E k \in Kinds : claim_outbox(s, k) \/ settle(s, k) \/ DieUnsettled(s, k)
        \/ settle_complete(s) \/ give_way(s) \/ close(s) \/ delete_old(s)
    \/ \E k \in Keys : forget(k)
    \/ Deliver \/ AddItem \/ EmptyCart \/ Replicate \/ FailOver \/ Quiesce \/ Stop

Spec == Init /\ [][Next]_vars

Bounded ==
    /\ \A s \in Scopes : journal[s] = NoRow \/ journal[s].attempt <= MaxAttempts
    /\ \A t \in Tasks : tasks[t] = Idle \/ tasks[t].attempt <= MaxAttempts

Symmetry == Permutations(Tasks) \union Permutations(Requests)

-----------------------------------------------------------------------------
(* Invariants. *)

OneChargeAScope ==
    \A s \in Scopes : Cardinality({k \in Captured : k[1] = s}) <= 1 /\ \A k \in Captured : charges[k].times = 1
OneShipmentAScope == \A s \in Scopes : Cardinality({k \in Shipped : k[1] = s}) <= 1
OneChargeACart == Cardinality(Captured) <= 1
OneShipmentACart == Cardinality(Shipped) <= 1

\* A charge of a shipped order is never released.
ShipmentsAreCharged == Shipped \subseteq Captured

\* What the caller of a placed order receives is true.
PlacedOrdersAreShipped ==
    \A s \in Scopes :
        journal[s].state \in {"SHIPPED", "DONE"} => <<s, journal[s].id, journal[s].attempt>> \in Shipped

\* It was charged and shipped for this request, at this price.
PlacedOrdersHaveTheirContent ==
    \A s \in Scopes :
        journal[s].state \in {"SHIPPED", "DONE"} =>
            LET key == <<s, journal[s].id, journal[s].attempt>> IN
            charges[key].content = journal[s].content /\ shipments[key] = journal[s].content.request

ReleasedOrdersAreNotCharged ==
    \A s \in Scopes : journal[s].state \in Released => {k \in Captured : k[1] = s} = {}

\* A refusal that is final for its key.
RefusedOrdersAreNotCharged ==
    \A s \in Scopes : HasKey /\ journal[s].state \in {"DECLINED", "VOIDED"} => {k \in Captured : k[1] = s} = {}

ShippedOrdersHaveItems == \A s \in Scopes : Outbox /\ journal[s].state = "SHIPPED" => journal[s].outbox # {}

DoneOrdersAreNotified ==
    \A s \in Scopes : journal[s].state = "DONE" =>
        /\ "email" \in Kinds => <<s, journal[s].id>> \in mailed
        /\ journal[s].content.generation # cart.generation

\* Shipped and left in the cart is what was added: no item is bought twice, and none vanishes.
ItemsAreBoughtOnce ==
    LET items == cart.quantity + Total(Shipped) - Held
    IN cart.added - cart.emptied <= items /\ items <= cart.added

\* What remains of it if the journal loses orders.
NoItemIsShippedTwice == Total(Shipped) <= cart.added
NoItemVanishes == cart.quantity + Total(Shipped) >= cart.added - cart.emptied
=============================================================================
