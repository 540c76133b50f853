-- Part of the import scripts: commits, or rolls back a dry run.
\if :{?apply}
  commit;
  \echo 'Done.'
\else
  rollback;
  \echo 'Dry run: nothing was changed. Repeat it with -v apply=1.'
\endif
