----------------------------- MODULE Conformance -----------------------------
(***************************************************************************)
(* Runs of the code, step by step in the model: TLC reports a deadlock at  *)
(* the first step that the model does not allow.                           *)
(***************************************************************************)
EXTENDS Orders, Runs

VARIABLES
    run,  \* the number of the run
    at    \* how many of its steps were taken

\* The next command of a task; for Update with the new state, for ResolveShipment with its reason.
Observed(t) ==
    LET task == tasks[t] IN
    IF task = Idle THEN <<"idle", "">>
    ELSE CASE task.pc = "ResolveReused" -> <<"Resolve", "">>
           [] task.pc = "ResolveShipment" -> <<task.pc, task.why>>
           [] task.pc = "Update" -> <<task.pc, task.to>>
           [] OTHER -> <<task.pc, "">>

View ==
    LET row == journal["cart"]
        key(attempt) == <<"cart", 1, attempt>>
    IN [
    row |-> IF row = NoRow THEN <<>>
            ELSE <<row.state, row.attempt, row.owner, row.content.request, row.content.price,
                   IF row.state = "CHARGING" THEN row.after ELSE "">>,
    charges |-> [attempt \in 1..MaxAttempts |->
        LET entry == charges[key(attempt)] IN <<entry.state, entry.content.request, entry.content.price>>],
    shipments |-> [attempt \in 1..MaxAttempts |-> shipments[key(attempt)]],
    tasks |-> [n \in 1..Cardinality(Tasks) |-> Observed("w" \o ToString(n))]]

Take(step) ==
    LET t == step.task
        r == step.request
        a == step.action
    IN
    CASE a = "Insert" -> Insert(t, "cart", Content(r, step.price, 1))
      [] a = "reopen" -> reopen(t, "cart", Content(r, step.price, 1))
      [] a = "take_over" -> take_over(t, "cart", r)
      [] a = "claim_expired" -> claim_expired(t, "cart")
      [] a = "Charge" -> Charge(t)
      [] a = "Resolve" -> Resolve(t) \/ ResolveReused(t)
      [] a = "Ship" -> Ship(t)
      [] a = "ResolveShipment" -> ResolveShipment(t)
      [] a = "Void" -> Void(t)
      [] a = "Update" -> Update(t)
      [] a = "Restore" -> Restore(t)
      [] a = "Die" -> Die(t)
      [] a = "Delay" -> Delay(t)
      [] a = "Deliver" -> Deliver
      [] a = "Replicate" -> Replicate
      [] a = "FailOver" -> FailOver

ConformanceInit == Init /\ run \in DOMAIN Runs /\ at = 0

ConformanceNext ==
    /\ UNCHANGED run
    /\ \/ /\ at < Len(Runs[run])
          /\ at' = at + 1
          /\ Take(Runs[run][at'])
          /\ View' = Runs[run][at'].view
       \/ /\ at = Len(Runs[run])
          /\ UNCHANGED <<vars, at>>

Conforms == ConformanceInit /\ [][ConformanceNext]_<<vars, run, at>>
=============================================================================
